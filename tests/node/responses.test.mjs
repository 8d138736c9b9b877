// OpenAI's own Node client on /v1/responses; chat completions are in client.test.mjs.
// `tests/client_libraries/test_client_matrix.py` runs this file and makes a test of each of its tests.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import {
  KEY, PROXY, QUESTION, RESULT, ROME, SENTENCE, THOUGHT, TIMEOUT_MS,
  arrived, checkLabel, checkMembers, failureOf, isScored, named, readUntilFailure, tries, wasLeft,
} from "./proxied.mjs";

const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", name: "get_weather", strict: true, parameters }];
const ERRORS = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError,
  409: OpenAI.ConflictError,
  422: OpenAI.UnprocessableEntityError,
  429: OpenAI.RateLimitError,
  500: OpenAI.InternalServerError,
};
const CODES = { 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded" };

function client(options = {}) {
  return new OpenAI({ baseURL: PROXY, apiKey: KEY, maxRetries: 0, ...options });
}

const asked = (behaviour, fields = {}) => ({ model: named(behaviour), input: QUESTION, ...fields });

test("a response arrives whole, with its request id", async () => {
  const response = await client().responses.create(asked("thinking"));
  assert.equal(response.output_text, SENTENCE);
  assert.equal(response.output[0].summary[0].text, THOUGHT);
  assert.equal(response._request_id, "req_upstream_1");
});

test("every typed event of a stream arrives, in upstream's order", async () => {
  const stream = client().responses.create(asked("thinking", { stream: true }));
  const { parts } = await readUntilFailure(stream);
  assert.deepEqual(parts.map((event) => event.sequence_number), [...parts.keys()]);
  assert.deepEqual([parts[0].type, parts.at(-1).type], ["response.created", "response.completed"]);
  const deltas = parts.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), SENTENCE);
});

test("the client's stream helper puts the response together", async () => {
  const stream = client().responses.stream(asked("text"));
  assert.equal((await stream.finalResponse()).output_text, SENTENCE);
});

test("a tool is called, and its result is answered in a second turn", async () => {
  const first = asked("tools", { tools });
  const { output } = await client().responses.create(first);
  assert.deepEqual(JSON.parse(output[0].arguments), { city: "Paris" });
  const result = { type: "function_call_output", call_id: output[0].call_id, output: RESULT };
  const input = [{ role: "user", content: QUESTION }, ...output, result];
  assert.equal((await client().responses.create({ ...first, input })).output_text, SENTENCE);
});

test("parallel calls arrive whole and in order, streamed, too", async () => {
  const whole = await client().responses.create(asked("parallel", { tools }));
  const streamed = await client().responses.stream(asked("parallel", { tools })).finalResponse();
  for (const { output } of [whole, streamed]) {
    const found = output.map((call) => JSON.parse(call.arguments));
    assert.deepEqual(found, [{ city: "Paris" }, { city: "Rome" }]);
  }
});

test("a structured output is parsed", async () => {
  const format = zodTextFormat(z.object({ name: z.string(), inhabitants: z.number() }), "city");
  const response = await client().responses.parse(asked("text", { text: { format } }));
  assert.deepEqual(response.output_parsed, ROME);
});

test("an error of upstream's has its class, its code and its request id", async () => {
  for (const [status, kind] of Object.entries(ERRORS)) {
    for (const stream of [false, true]) {
      const error = await failureOf(client().responses.create(asked(`status-${status}`, { stream })));
      assert.ok(error instanceof kind, `${status} is a ${error.constructor.name}`);
      assert.equal(error.requestID, "req_upstream_1");
      assert.equal(error.code, CODES[status] ?? "c");
    }
  }
});

test("the client tries as often as it says", async () => {
  for (const status of [429, 500]) {
    const failing = asked(`status-${status}`);
    await failureOf(client({ maxRetries: 1 }).responses.create(failing));
    assert.equal(await tries(failing.model), 2);
    const flaky = asked(`flaky-${status}`);
    assert.equal((await client({ maxRetries: 2 }).responses.create(flaky)).output_text, SENTENCE);
    assert.equal(await tries(flaky.model), 3);
  }
});

test("a stream that breaks off never looks whole", async () => {
  const { parts, error } = await readUntilFailure(
    client().responses.create(asked("cut", { stream: true })),
  );
  assert.ok(error);
  assert.ok(parts.every((event) => event.type !== "response.completed"));
});

test("an error event of upstream's reaches the application", async () => {
  const { parts, error } = await readUntilFailure(
    client().responses.create(asked("error-event", { stream: true })),
  );
  assert.match(error?.message ?? parts.at(-1).message, /upstream gave up/);
});

test("the client's timeout holds, and reaches upstream", async () => {
  const slow = asked("slow");
  const error = await failureOf(client({ timeout: TIMEOUT_MS }).responses.create(slow));
  assert.ok(error instanceof OpenAI.APIConnectionTimeoutError);
  await wasLeft(slow.model);
});

test("aborting a request reaches upstream", async () => {
  const aborter = new AbortController();
  const slow = asked("slow");
  const failure = failureOf(client().responses.create(slow, { signal: aborter.signal }));
  await arrived(slow.model);
  aborter.abort();
  assert.ok((await failure) instanceof OpenAI.APIUserAbortError);
  await wasLeft(slow.model);
});

test("leaving a stream reaches upstream", async () => {
  const endless = asked("endless", { stream: true });
  for await (const event of await client().responses.create(endless)) {
    if (event.type === "response.output_text.delta") break;
  }
  await wasLeft(endless.model);
});

const skip = !isScored("responses");
test("where responses are scored, a held tool call is a 422 that is not retried", { skip }, async () => {
  for (const stream of [false, true]) {
    const held = asked("held-tools", { tools, stream });
    const error = await failureOf(client({ maxRetries: 2 }).responses.create(held));
    assert.ok(error instanceof OpenAI.UnprocessableEntityError);
    assert.equal(error.code, "held_for_review");
    assert.equal(await tries(held.model), 1);
  }
});

test("the confidence stands in the headers and in the response", async () => {
  const { data, response } = await client().responses.create(asked("text")).withResponse();
  checkLabel("responses", response.headers);
  checkMembers("responses", [data]);
});

test("a stream's confidence is in the response of its last event", async () => {
  const stream = client().responses.create(asked("text", { stream: true }));
  const { parts } = await readUntilFailure(stream);
  checkMembers("responses", parts.map((event) => event.response));
  checkMembers("responses", [parts.at(-1).response]);
});
