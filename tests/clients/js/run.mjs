// `node run.mjs <case>`: runs one case; its site is JSON in the environment.

import { cases } from "./cases.mjs";
import { Site } from "./site.mjs";

const [name] = process.argv.slice(2);
await cases[name](new Site(JSON.parse(process.env.SITE)));
console.log(`${name} passed`);
