// Anthropic's own Node client on /v1/messages.
// `tests/client_libraries/test_client_matrix.py` runs this file and makes a test of each of its tests.

import assert from "node:assert/strict";
import test from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

import {
  KEY, PROXY, QUESTION, RESULT, ROME, SENTENCE, THOUGHT, TIMEOUT_MS,
  arrived, checkLabel, checkMembers, failureOf, isScored, named, readUntilFailure, tries, wasLeft,
} from "./proxied.mjs";

const MESSAGES = [{ role: "user", content: QUESTION }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", input_schema: schema }];
const ERRORS = {
  400: Anthropic.BadRequestError,
  401: Anthropic.AuthenticationError,
  403: Anthropic.PermissionDeniedError,
  404: Anthropic.NotFoundError,
  422: Anthropic.UnprocessableEntityError,
  429: Anthropic.RateLimitError,
  500: Anthropic.InternalServerError,
};

function client(options = {}) {
  const baseURL = PROXY.replace(/\/v1$/, "");
  return new Anthropic({ baseURL, apiKey: KEY, maxRetries: 0, ...options });
}

const asked = (behaviour, fields = {}) => ({
  model: named(behaviour), max_tokens: 100, messages: MESSAGES, ...fields,
});

test("a message arrives whole, with its request id", async () => {
  const message = await client().messages.create(asked("text"));
  assert.equal(message.content[0].text, SENTENCE);
  assert.equal(message._request_id, "req_upstream_1");
  assert.equal(message.usage.output_tokens, 15);
});

test("a stream arrives event by event", async () => {
  const { parts } = await readUntilFailure(client().messages.create(asked("text", { stream: true })));
  assert.deepEqual(parts.map((event) => event.type), [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
});

test("the client's stream helper puts text and thoughts together", async () => {
  const pieces = [];
  const stream = client().messages.stream(asked("thinking")).on("text", (text) => pieces.push(text));
  const [thought, text] = (await stream.finalMessage()).content;
  assert.equal(thought.thinking, THOUGHT);
  assert.equal(text.text, SENTENCE);
  assert.equal(pieces.length, 2);
});

test("a tool is called, and its result is answered in a second turn", async () => {
  const first = asked("tools", { tools });
  const { content, stop_reason } = await client().messages.create(first);
  assert.deepEqual([stop_reason, content[0].input], ["tool_use", { city: "Paris" }]);
  const result = { type: "tool_result", tool_use_id: content[0].id, content: RESULT };
  const turns = [{ role: "assistant", content }, { role: "user", content: [result] }];
  const second = await client().messages.create({ ...first, messages: [...MESSAGES, ...turns] });
  assert.equal(second.content[0].text, SENTENCE);
});

test("parallel calls arrive whole and in order, from pieces of JSON, too", async () => {
  const whole = await client().messages.create(asked("parallel", { tools }));
  const streamed = await client().messages.stream(asked("parallel", { tools })).finalMessage();
  for (const message of [whole, streamed]) {
    const inputs = message.content.map((call) => call.input);
    assert.deepEqual(inputs, [{ city: "Paris" }, { city: "Rome" }]);
  }
});

test("a structured output is parsed", async () => {
  const format = zodOutputFormat(z.object({ name: z.string(), inhabitants: z.number() }));
  const message = await client().messages.parse(asked("text", { output_config: { format } }));
  assert.deepEqual(message.parsed_output, ROME);
});

test("an error of upstream's has its class, its body and its request id", async () => {
  for (const [status, kind] of Object.entries(ERRORS)) {
    for (const stream of [false, true]) {
      const error = await failureOf(client().messages.create(asked(`status-${status}`, { stream })));
      assert.ok(error instanceof kind, `${status} is a ${error.constructor.name}`);
      assert.equal(error.requestID, "req_upstream_1");
      assert.equal(error.error.type, "error");
      assert.ok(error.message.includes(error.error.error.message));
    }
  }
});

test("the client tries as often as it says", async () => {
  for (const status of [429, 500]) {
    const failing = asked(`status-${status}`);
    await failureOf(client({ maxRetries: 1 }).messages.create(failing));
    assert.equal(await tries(failing.model), 2);
    const flaky = asked(`flaky-${status}`);
    const message = await client({ maxRetries: 2 }).messages.create(flaky);
    assert.equal(message.content[0].text, SENTENCE);
    assert.equal(await tries(flaky.model), 3);
  }
});

test("a stream that breaks off or ends with an error event never looks whole", async () => {
  for (const behaviour of ["cut", "error-event"]) {
    const stream = client().messages.create(asked(behaviour, { stream: true }));
    const { parts, error } = await readUntilFailure(stream);
    assert.equal(parts.filter((event) => event.type === "content_block_delta").length, 1);
    assert.ok(error, behaviour);
    if (behaviour === "error-event") assert.match(error.message, /upstream gave up/);
  }
});

test("the client's timeout holds, and reaches upstream", async () => {
  const slow = asked("slow");
  const error = await failureOf(client({ timeout: TIMEOUT_MS }).messages.create(slow));
  assert.ok(error instanceof Anthropic.APIConnectionTimeoutError);
  await wasLeft(slow.model);
});

test("aborting a request reaches upstream", async () => {
  const aborter = new AbortController();
  const slow = asked("slow");
  const failure = failureOf(client().messages.create(slow, { signal: aborter.signal }));
  await arrived(slow.model);
  aborter.abort();
  assert.ok((await failure) instanceof Anthropic.APIUserAbortError);
  await wasLeft(slow.model);
});

test("leaving a stream reaches upstream", async () => {
  const endless = asked("endless", { stream: true });
  for await (const event of await client().messages.create(endless)) {
    if (event.type === "content_block_delta") break;
  }
  await wasLeft(endless.model);
});

const skip = !isScored("messages");
test("where messages are scored, a held tool call is a 422 that is not retried", { skip }, async () => {
  for (const stream of [false, true]) {
    const held = asked("held-tools", { tools, stream });
    const error = await failureOf(client({ maxRetries: 2 }).messages.create(held));
    assert.ok(error instanceof Anthropic.UnprocessableEntityError);
    assert.match(error.message, /held for review/);
    assert.ok(error.headers.get("x-pinocchio-review-id"));
    assert.equal(await tries(held.model), 1);
  }
});

test("the confidence stands in the headers and in the message", async () => {
  const { data, response } = await client().messages.create(asked("text")).withResponse();
  checkLabel("messages", response.headers);
  checkMembers("messages", [data]);
});

test("a stream's confidence is in its event `message_delta`", async () => {
  const { parts } = await readUntilFailure(client().messages.create(asked("text", { stream: true })));
  checkMembers("messages", parts);
  const judged = parts.filter((event) => event.pinocchio).map((event) => event.type);
  assert.deepEqual(judged, isScored("messages") ? ["message_delta"] : []);
});
