// The official TypeScript client with its Tasks package, one case at a time.
// node client.mjs CASE; the site is in the environment as JSON: urls, key, and for some cases a reference.

import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const site = JSON.parse(process.env.SITE);
const VERSION = "2026-07-28";
const clientInfo = { name: "tests", version: "1" };
const clientCapabilities = {
  elicitation: { form: {} },
  extensions: { "io.modelcontextprotocol/tasks": {} },
};
const authorization = `Bearer ${site.key}`;

async function dispatch(request, options) {
  const { method, params } = request;
  const named = { "tools/call": params?.name, "resources/read": params?.uri }[method] ?? params?.taskId;
  const headers = {
    Authorization: authorization,
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": method,
    ...(named === undefined ? {} : { "Mcp-Name": named }),
    ...options?.context?.headers,
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: crypto.randomUUID(), ...request });
  const answer = await fetch(site.urls[0], { method: "POST", headers, body, signal: options?.signal });
  const message = await answer.json();
  return message.error ? { kind: "error", error: message.error } : { kind: "result", result: message.result };
}

async function use(act) {
  const client = new Client(clientInfo, {
    capabilities: clientCapabilities,
    versionNegotiation: { mode: { pin: VERSION } },
  });
  client.setRequestHandler?.("elicitation/create", async () => ({ action: "cancel" }));
  const requestInit = { headers: { Authorization: authorization } };
  await client.connect(new StreamableHTTPClientTransport(new URL(site.urls[0]), { requestInit }));
  const asked = [];
  const session = createTaskSessionFromClient(client, {
    endpointId: "perdure",
    rawDispatch: dispatch,
    v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities },
    onInputRequest: async (request) => {
      asked.push(request);
      return { action: "accept", content: { confirm: true } };
    },
  });
  try {
    return await act(session, asked, client);
  } finally {
    await session.close();
    await client.close();
  }
}

const text = (outcome) => resultFromTaskOutcome(outcome).content[0].text;

const cases = {
  async answer() {
    await use(async (session, asked) => {
      const execution = await session.callTool("confirm_delete", { filename: "t.txt" });
      assert.equal(execution.kind, "task");
      const { outcome } = await execution.settle();
      assert.equal(text(outcome), "deleted t.txt");
      assert.equal(asked.length, 1);
    });
  },
  async start() {
    await use(async (session) => {
      const execution = await session.callTool("slow_compute", { seconds: 1, label: "kept" });
      await execution.handoff((reference) => console.error(JSON.stringify(reference)));
      // A session that is closed cancels what it has started; a process that dies does not.
      console.log("start passed");
      process.exit(0);
    });
  },
  async resume() {
    await use(async (session) => {
      const execution = await session.resumeTask(site.reference);
      const { outcome } = await execution.settle();
      assert.equal(text(outcome), "computed kept");
    });
  },
  async cancel() {
    await use(async (session) => {
      const execution = await session.callTool("slow_compute", { seconds: 600 });
      await execution.cancel();
      const { outcome } = await execution.settle();
      assert.equal(outcome.status, "cancelled");
    });
  },
  async tools() {
    await use(async (session, asked, client) => {
      const { tools } = await client.listTools();
      assert.ok(tools.some((tool) => tool.name === "slow_compute"));
      const greeted = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
      assert.equal(greeted.content[0].text, "Hello, Ada!");
    });
  },
};

await cases[process.argv[2]]();
console.log(`${process.argv[2]} passed`);
