// What a case needs of the site: clients, scripts, and the sync points at which workers wait.

import assert from "node:assert/strict";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

import { Client } from "@langchain/langgraph-sdk";

export const ASSISTANT = "scripted";
export const UNKNOWN_RUN = "11111111-1111-4111-8111-111111111111";
const PATIENCE_SECONDS = 30;

export class Site {
  constructor({ url, proxy, key, weakKey, sync }) {
    Object.assign(this, { url, proxy, weakKey, sync });
    this.key = key;
    this.client = this.clientOf({});
  }

  // Retries would hide an answer that came at a wrong time.
  clientOf({ url = this.url, key = this.key, headers = {} }) {
    const callerOptions = { maxRetries: 0 };
    return new Client({ apiUrl: url, apiKey: key, defaultHeaders: headers, callerOptions });
  }

  async newThread() {
    return (await this.client.threads.create()).thread_id;
  }

  hold(point, passes = "") {
    writeFileSync(join(this.sync, `${point}.hold`), passes);
  }

  release(point) {
    rmSync(join(this.sync, `${point}.hold`), { force: true });
  }

  async reached(point, runId) {
    const hit = join(this.sync, `${point}.${runId}.hit`);
    for (let left = PATIENCE_SECONDS * 50; left > 0; left -= 1) {
      if (existsSync(hit)) return;
      await pause(20);
    }
    assert.fail(`${point} was never reached`);
  }
}

export const script = (...operations) => ({ script: operations });
export const say = (text) => ({ op: "say", text });
export const contents = (values) => values.messages.map((message) => message.content);
export const names = (parts) => parts.map((part) => part.event);

export async function read(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

// What was said, as the updates of a stream tell it.
export function updates(parts) {
  return parts
    .filter((part) => part.event === "updates")
    .flatMap((part) => Object.values(part.data))
    .map((one) => one.messages[0].content);
}

export async function refused(status, promise, told = "") {
  await assert.rejects(promise, (error) => {
    assert.equal(error.status, status, String(error));
    assert.match(error.message, new RegExp(told));
    return true;
  });
}
