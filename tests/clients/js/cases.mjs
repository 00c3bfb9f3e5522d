// The runs contract's acceptance A1 to A9 with the JavaScript client; a case rejects or passes.

import assert from "node:assert/strict";

import {
  ASSISTANT, UNKNOWN_RUN, contents, names, read, refused, say, script, updates,
} from "./site.mjs";

const MODES = ["values", "updates", "custom"];
const FAIL = { op: "fail", error: "Broken", message: "as planned" };
const QUESTION = { op: "interrupt", value: "go on?", answer: { type: "boolean" } };

export const cases = {
  // Workflows are assistants; a thread lives, is described and found, and dies for good.
  async a1({ client }) {
    const { assistants, threads } = client;
    const found = (await assistants.search({ limit: 50 })).map((one) => one.assistant_id);
    assert(found.includes(ASSISTANT));
    assert.equal(await assistants.count(), found.length);
    assert.equal((await assistants.get(ASSISTANT)).graph_id, ASSISTANT);
    assert((await assistants.getGraph(ASSISTANT)).nodes);
    const schemas = await assistants.getSchemas(ASSISTANT);
    assert("script" in schemas.input_schema.properties);
    await refused(404, assistants.get("nobody"));

    const named = { threadId: "talk", metadata: { topic: "a" } };
    const made = await threads.create(named);
    assert.deepEqual([made.thread_id, made.status], ["talk", "idle"]);
    await refused(409, threads.create(named));
    const again = await threads.create({ ...named, ifExists: "do_nothing" });
    assert.equal(again.created_at, made.created_at);
    await threads.create({ metadata: { topic: "b" } });
    const talks = await threads.search({ metadata: { topic: "a" } });
    assert.deepEqual(talks.map((one) => one.thread_id), ["talk"]);
    assert.equal(await threads.count(), 2);
    const changed = await threads.update("talk", { metadata: { more: 1 } });
    assert.deepEqual(changed.metadata, { topic: "a", more: 1 });
    await threads.updateState("talk", { values: { colour: "red" } });
    await threads.updateState("talk", { values: { colour: "blue" } });
    const state = await threads.getState("talk");
    assert.equal(state.values.colour, "blue");
    const history = await threads.getHistory("talk");
    assert.deepEqual(history.map((one) => one.values.colour), ["blue", "red"]);
    assert.deepEqual(await threads.getState("talk", history[1].checkpoint), history[1]);
    await threads.delete("talk");
    await refused(404, threads.get("talk"));
    await refused(409, threads.create(named));
  },

  // A run is pending with its place in a header; join and wait return the same values.
  async a2(site) {
    const { runs, threads } = site.client;
    site.hold("claim.before");
    const thread = await site.newThread();
    const told = [];
    const input = script(say("one"));
    const run = await runs.create(thread, ASSISTANT, {
      input,
      onRunCreated: (made) => told.push(made),
    });
    assert.deepEqual(told, [{ run_id: run.run_id, thread_id: thread }]);
    assert.equal(run.status, "pending");
    assert.deepEqual(await runs.list(thread, { status: "pending" }), [run]);
    assert.deepEqual(await runs.list(thread, { status: "success" }), []);
    site.release("claim.before");
    const values = await runs.join(thread, run.run_id);
    assert.deepEqual(contents(values), ["one"]);
    assert.equal((await runs.get(thread, run.run_id)).status, "success");
    assert.deepEqual((await threads.getState(thread)).values, values);
    const waited = await runs.wait(await site.newThread(), ASSISTANT, { input });
    assert.deepEqual(Object.keys(waited).sort(), Object.keys(values).sort());
    assert.deepEqual(contents(waited), contents(values));
  },

  // Metadata first, ids ascending, end last; a child's frames carry its name.
  async a3({ client }) {
    const input = script(
      say("one"),
      { op: "set", values: { colour: "red" } },
      { op: "task", script: [say("from the child")] },
      say("two"),
    );
    const asked = { input, streamMode: MODES, streamSubgraphs: true };
    const parts = await read(client.runs.stream(null, ASSISTANT, asked));
    const told = names(parts);
    assert.equal(told[0], "metadata");
    assert.equal(told.at(-1), "end");
    assert.equal(parts.at(-1).data.status, "success");
    for (const mode of MODES) assert(told.includes(mode), mode);
    const ids = parts.filter((part) => part.id).map((part) => Number(part.id));
    assert.deepEqual(ids, [...ids].sort((a, b) => a - b));
    const own = parts.filter((part) => part.event === "values").at(-1).data;
    assert.deepEqual(contents(own), ["one", "two"]);
    assert.equal(own.colour, "red");
    const childs = parts.filter((part) => part.event.startsWith("values|subagent:"));
    assert.deepEqual(contents(childs.at(-1).data), ["from the child"]);
  },

  // The proxy cuts the connection at the third update: each durable frame comes once.
  async a4_cut(site) {
    const words = ["0", "1", "2", "3", "4", "5", "6", "7"];
    const { runs } = site.clientOf({ url: site.proxy });
    const input = script(...words.map(say));
    const parts = await read(runs.stream(null, ASSISTANT, { input, streamMode: ["updates"] }));
    assert.deepEqual(updates(parts), words);
    assert.equal(parts.at(-1).event, "end");
  },

  // The proxy cuts idle connections: heartbeats hold one whose run is silent for longer.
  async a4_idle(site) {
    const { runs } = site.clientOf({ url: site.proxy });
    const input = script(say("one"), { op: "sleep", s: 3 }, say("two"));
    const [parts, values] = await Promise.all([
      read(runs.stream(null, ASSISTANT, { input })),
      runs.wait(null, ASSISTANT, { input }),
    ]);
    assert.equal(names(parts).filter((name) => name === "metadata").length, 1);
    assert.deepEqual(contents(values), ["one", "two"]);
  },

  // A failure is raised with class and text; a question comes back, its answer into the same run.
  async a5(site) {
    const { runs, threads } = site.client;
    const thread = await site.newThread();
    const failing = { input: script(FAIL) };
    await assert.rejects(runs.wait(thread, ASSISTANT, failing), /Broken: as planned/);
    assert.deepEqual(await runs.wait(thread, ASSISTANT, { ...failing, raiseError: false }), {
      __error__: { error: "Broken", message: "as planned" },
    });
    assert.equal((await threads.get(thread)).status, "error");

    const asking = await site.newThread();
    const input = script(say("one"), QUESTION, say("two"));
    const told = await runs.wait(asking, ASSISTANT, { input });
    assert.equal(told.__interrupt__[0].value.prompt, "go on?");
    const [run] = await runs.list(asking);
    assert.equal(run.status, "interrupted");
    const resumed = await runs.create(asking, ASSISTANT, { command: { resume: true } });
    assert.equal(resumed.run_id, run.run_id);
    assert.deepEqual(contents(await runs.join(asking, run.run_id)), ["one", "two"]);
    const late = runs.create(asking, ASSISTANT, { command: { resume: true } });
    await refused(409, late, "no_pending_interrupt");
  },

  // Cancelled twice is as good as once; a finished run is not cancelled; many at once.
  async a6(site) {
    const { runs } = site.client;
    const thread = await site.newThread();
    const input = script(say("one"));
    site.hold("step.before");
    const run = await runs.create(thread, ASSISTANT, { input });
    await site.reached("step.before", run.run_id);
    assert.equal(await runs.cancel(thread, run.run_id), undefined);
    assert.equal(await runs.cancel(thread, run.run_id), undefined);
    site.release("step.before");
    assert.equal(await runs.cancel(thread, run.run_id, true), undefined);
    const ended = await runs.get(thread, run.run_id);
    assert.deepEqual([ended.status, ended.stop_reason], ["interrupted", "user_cancelled"]);
    await runs.wait(thread, ASSISTANT, { input });
    const [finished] = await runs.list(thread);
    await refused(409, runs.cancel(thread, finished.run_id));
    await refused(404, runs.cancel(thread, UNKNOWN_RUN));

    site.hold("claim.before");
    const first = await runs.create(thread, ASSISTANT, { input });
    const other = await site.newThread();
    const second = await runs.create(other, ASSISTANT, { input });
    await runs.cancelMany({ threadId: thread, runIds: [first.run_id] });
    assert.equal((await runs.get(thread, first.run_id)).status, "interrupted");
    assert.equal((await runs.get(other, second.run_id)).status, "pending");
    await runs.cancelMany({ status: "all" });
    assert.equal((await runs.get(other, second.run_id)).status, "interrupted");
  },

  // A busy thread refuses, queues, gives way or goes back; a key stands for one run.
  async a7(site) {
    const { runs } = site.client;
    const thread = await site.newThread();
    await runs.wait(thread, ASSISTANT, { input: script(say("before")) });
    const asked = (text, multitaskStrategy) => ({ input: script(say(text)), multitaskStrategy });
    site.hold("claim.before");
    const first = await runs.create(thread, ASSISTANT, asked("one"));
    await refused(409, runs.create(thread, ASSISTANT, asked("two")), "thread_busy");
    const waiting = await runs.create(thread, ASSISTANT, asked("three", "enqueue"));
    const third = await runs.create(thread, ASSISTANT, asked("four", "interrupt"));
    const last = await runs.create(thread, ASSISTANT, asked("five", "rollback"));
    const next = await runs.create(thread, ASSISTANT, asked("six", "enqueue"));
    site.release("claim.before");
    assert.deepEqual(contents(await runs.join(thread, last.run_id)), ["before", "five"]);
    assert.deepEqual(contents(await runs.join(thread, next.run_id)), ["before", "five", "six"]);
    for (const run of [first, waiting]) {
      const ended = await runs.get(thread, run.run_id);
      assert.deepEqual([ended.status, ended.stop_reason], ["interrupted", "superseded"]);
    }
    const taken = await runs.get(thread, third.run_id);
    assert.deepEqual([taken.status, taken.stop_reason], ["error", "rolled_back"]);

    const keyed = site.clientOf({ headers: { "Idempotency-Key": "k" } }).runs;
    const made = await keyed.create(thread, ASSISTANT, asked("seven"));
    assert.equal((await keyed.create(thread, ASSISTANT, asked("seven"))).run_id, made.run_id);
    await refused(409, keyed.create(thread, ASSISTANT, asked("eight")), "idempotency_mismatch");
  },

  // Runs without a thread; a stream from its beginning, at its end, and after a cancel.
  async a8(site) {
    const { runs } = site.client;
    const input = script(say("one"), say("two"));
    assert.deepEqual(contents(await runs.wait(null, ASSISTANT, { input })), ["one", "two"]);
    const streamed = await read(runs.stream(null, ASSISTANT, { input }));
    assert.deepEqual([streamed[0].event, streamed.at(-1).event], ["metadata", "end"]);
    const batch = await runs.createBatch([
      { assistantId: ASSISTANT, input },
      { assistantId: ASSISTANT, input },
    ]);
    assert.equal(new Set(batch.map((run) => run.thread_id)).size, 2);
    for (const run of batch) await runs.join(run.thread_id, run.run_id);

    const place = [batch[0].thread_id, batch[0].run_id];
    const again = { streamMode: "updates", lastEventId: "0" };
    const replayed = await read(runs.joinStream(...place, again));
    assert.deepEqual(updates(replayed), ["one", "two"]);
    const atOnce = await read(runs.joinStream(...place, { streamMode: ["values"] }));
    assert.deepEqual(names(atOnce), ["metadata", "values", "end"]);

    site.hold("claim.before");
    const thread = await site.newThread();
    const run = await runs.create(thread, ASSISTANT, { input });
    assert.equal(await runs.cancel(thread, run.run_id, true), undefined);
    const cancelled = await read(runs.joinStream(thread, run.run_id));
    assert.equal(cancelled.at(-1).event, "end");
    assert.equal(cancelled.at(-1).data.stop_reason, "user_cancelled");
  },

  // Each refusal has its status, says why, and leaves nothing.
  async a9(site) {
    const { runs } = site.client;
    const input = script(say("one"));
    await refused(404, runs.create("nowhere", ASSISTANT, { input }));
    const made = await runs.create("nowhere", ASSISTANT, { input, ifNotExists: "create" });
    assert.equal(made.thread_id, "nowhere");
    const thread = await site.newThread();
    const unknown = { input, streamMode: "events" };
    await refused(422, runs.create(thread, ASSISTANT, unknown), "events");
    await refused(404, runs.create(thread, "nobody", { input }));
    assert.deepEqual(await runs.list(thread), []);

    const weak = site.clientOf({ key: site.weakKey }).runs;
    site.hold("claim.before");
    const own = (await site.clientOf({ key: site.weakKey }).threads.create()).thread_id;
    const run = await weak.create(own, ASSISTANT, { input });
    await refused(403, weak.cancel(own, run.run_id));
    const taking = { input, multitaskStrategy: "interrupt" };
    await refused(403, weak.create(own, ASSISTANT, taking));
    assert.deepEqual((await weak.list(own)).map((one) => one.status), ["pending"]);
  },
};
