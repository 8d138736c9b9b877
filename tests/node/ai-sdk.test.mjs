// Vercel's AI SDK with its four providers; each test goes through all of them.
// `tests/client_libraries/test_client_matrix.py` runs this file and makes a test of each of its tests.

import assert from "node:assert/strict";
import test from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, RetryError, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { seenCalls } from "../../examples/node/seen_calls.mjs";
import {
  KEY, PROXY, QUESTION, RESULT, ROME, SENTENCE, THOUGHT, TIMEOUT_MS,
  arrived, checkLabel, checkMembers, failureOf, isScored, named, tries, wasLeft,
} from "./proxied.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const settings = { baseURL: PROXY, apiKey: KEY };
const openai = createOpenAI(settings);
const PROVIDERS = {
  "openai chat": ["chat", openai.chat],
  "openai responses": ["responses", openai.responses],
  compatible: [
    "chat",
    createOpenAICompatible({ ...settings, name: "proxied", supportsStructuredOutputs: true }),
  ],
  anthropic: ["messages", createAnthropic(settings)],
};
const LISTENING = {
  "openai chat": (fetch) => createOpenAI({ ...settings, fetch }).chat,
  "openai responses": (fetch) => createOpenAI({ ...settings, fetch }).responses,
  compatible: (fetch) => createOpenAICompatible({ ...settings, fetch, name: "proxied" }),
  anthropic: (fetch) => createAnthropic({ ...settings, fetch }),
};
const ERRORS = {
  400: "malformed", 401: "key", 404: "model", 422: "processed", 429: "many", 500: "broken",
};

/** A test that goes through all providers, and names the one that fails. */
function each(check, wanted = () => true) {
  return async () => {
    for (const [provider, [surface, model]] of Object.entries(PROVIDERS)) {
      if (!wanted(surface)) continue;
      const asked = (behaviour, options = {}) => {
        const name = named(behaviour);
        const fields = { prompt: QUESTION, maxRetries: 0, onError() {}, ...options };
        return { name, fields: { ...fields, model: model(name) } };
      };
      try {
        await check(asked, surface, provider);
      } catch (error) {
        error.message = `${provider}: ${error.message}`;
        throw error;
      }
    }
  };
}

function weather(called) {
  return tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => (called.push(city), RESULT),
  });
}

async function partsOf(fields) {
  const parts = [];
  for await (const part of streamText(fields).fullStream) parts.push(part);
  return parts;
}

const textOf = (parts) =>
  parts.filter((part) => part.type === "text-delta").map((part) => part.text);

test("a text arrives, with its usage", each(async (asked) => {
  const result = await generateText(asked("text").fields);
  assert.equal(result.text, SENTENCE);
  assert.equal(result.finishReason, "stop");
  assert.ok(result.usage.totalTokens > 0);
}));

test("a stream gives the text in upstream's pieces", each(async (asked) => {
  const parts = await partsOf(asked("text").fields);
  assert.equal(textOf(parts).length, 2);
  assert.equal(textOf(parts).join(""), SENTENCE);
  assert.equal(parts.at(-1).finishReason, "stop");
}));

test("what a model thought arrives beside what it said", each(async (asked, surface, provider) => {
  if (provider === "openai chat") return; // OpenAI's own chat completions have no such field
  assert.equal((await generateText(asked("thinking").fields)).reasoningText, THOUGHT);
}));

test("tools are run, and their results are answered in a second turn", each(async (asked) => {
  for (const [behaviour, cities] of [["tools", ["Paris"]], ["parallel", ["Paris", "Rome"]]]) {
    const called = [];
    const options = { tools: { get_weather: weather(called) }, stopWhen: stepCountIs(3) };
    const { name, fields } = asked(behaviour, options);
    assert.equal((await generateText(fields)).text, SENTENCE);
    assert.deepEqual(called, cities);
    assert.equal(await tries(name), 2);
  }
}));

test("tools are run from a stream, too", each(async (asked) => {
  const called = [];
  const options = { tools: { get_weather: weather(called) }, stopWhen: stepCountIs(3) };
  const parts = await partsOf(asked("parallel", options).fields);
  assert.deepEqual(called, ["Paris", "Rome"]);
  assert.equal(textOf(parts).join(""), SENTENCE);
}));

test("a call below the threshold asks for an approval, and runs with it", each(async (_, surface, provider) => {
  for (const below of [0.3, 0.7]) { // upstream's calls have 0.5
    for (const isStream of [false, true]) {
      const [seen, called] = [seenCalls(), []];
      const name = named("tools");
      const get_weather = {
        ...weather(called),
        needsApproval: (_, { toolCallId }) => seen.isUnsure(toolCallId, below),
      };
      const model = LISTENING[provider](seen.fetch)(name);
      const fields = { model, maxRetries: 0, tools: { get_weather }, stopWhen: stepCountIs(3) };
      const run = async (messages) => {
        if (!isStream) return generateText({ ...fields, messages });
        const result = streamText({ ...fields, messages, onError() {} });
        await result.consumeStream();
        return { content: await result.content, text: await result.text, response: await result.response };
      };
      const messages = [{ role: "user", content: QUESTION }];
      const first = await run(messages);
      const asked = first.content.filter((part) => part.type === "tool-approval-request");
      assert.deepEqual(called, below === 0.7 ? [] : ["Paris"]);
      assert.equal(asked.length, below === 0.7 ? 1 : 0);
      if (!asked.length) continue;
      const content = [{ type: "tool-approval-response", approvalId: asked[0].approvalId, approved: true }];
      const done = await run([...messages, ...first.response.messages, { role: "tool", content }]);
      assert.deepEqual([called, done.text], [["Paris"], SENTENCE]);
    }
  }
}));

test("a structured output is an object, whole or streamed", each(async (asked, surface) => {
  const schema = z.object({ name: z.string(), inhabitants: z.number() });
  // for a Claude that it does not know by name, the SDK makes a tool of the schema
  const behaviour = surface === "messages" ? "structured" : "text";
  const output = Output.object({ schema });
  assert.deepEqual((await generateText(asked(behaviour, { output }).fields)).output, ROME);
  assert.deepEqual(await streamText(asked(behaviour, { output }).fields).output, ROME);
}));

test("an error of upstream's keeps its status, its words and its headers", each(async (asked) => {
  for (const [status, words] of Object.entries(ERRORS)) {
    const error = await failureOf(generateText(asked(`status-${status}`).fields));
    assert.ok(APICallError.isInstance(error), String(error));
    assert.equal(error.statusCode, Number(status));
    assert.match(error.message, new RegExp(words));
    const headers = error.responseHeaders;
    assert.equal(headers["x-request-id"] ?? headers["request-id"], "req_upstream_1");
    assert.equal(error.isRetryable, [429, 500].includes(Number(status)));
  }
}));

test("the client tries as often as it says", each(async (asked) => {
  for (const status of [429, 500]) {
    const failing = asked(`status-${status}`, { maxRetries: 1 });
    assert.ok(RetryError.isInstance(await failureOf(generateText(failing.fields))));
    assert.equal(await tries(failing.name), 2);
    const flaky = asked(`flaky-${status}`, { maxRetries: 2 });
    assert.equal((await generateText(flaky.fields)).text, SENTENCE);
    assert.equal(await tries(flaky.name), 3);
  }
}));

test("a stream that upstream ends with an error has an error part", each(async (asked) => {
  for (const behaviour of ["error-event", "cut"]) {
    const parts = await partsOf(asked(behaviour).fields).catch((error) => [{ type: "error", error }]);
    assert.ok(parts.some((part) => part.type === "error"), behaviour);
  }
}));

test("a timeout reaches upstream", each(async (asked) => {
  const { name, fields } = asked("slow", { abortSignal: AbortSignal.timeout(TIMEOUT_MS) });
  assert.equal((await failureOf(generateText(fields))).name, "TimeoutError");
  await wasLeft(name);
}));

test("aborting a request reaches upstream", each(async (asked) => {
  const aborter = new AbortController();
  const { name, fields } = asked("slow", { abortSignal: aborter.signal });
  const failure = failureOf(generateText(fields));
  await arrived(name);
  aborter.abort();
  assert.equal((await failure).name, "AbortError");
  await wasLeft(name);
}));

test("aborting a stream reaches upstream", each(async (asked) => {
  const aborter = new AbortController();
  const { name, fields } = asked("endless", { abortSignal: aborter.signal });
  let count = 0;
  for await (const _ of streamText(fields).textStream) if (++count === 3) aborter.abort();
  await wasLeft(name);
}));

test("a held tool call is a 422 that is not retried, and no tool runs", each(async (asked) => {
  for (const run of [generateText, (fields) => partsOf(fields).then(errorIn)]) {
    const called = [];
    const options = { maxRetries: 2, tools: { get_weather: weather(called) } };
    const { name, fields } = asked("held-tools", options);
    const error = await failureOf(run(fields));
    assert.deepEqual([error.statusCode, error.isRetryable], [422, false]);
    assert.match(error.message, /held for review/);
    assert.ok(error.responseHeaders["x-pinocchio-review-id"]);
    assert.deepEqual([called.length, await tries(name)], [0, 1]);
  }
}, isScored));

function errorIn(parts) {
  throw parts.find((part) => part.type === "error").error;
}

test("a placeholder is a text that was filtered", each(async (asked) => {
  const whole = await generateText(asked("held-placeholder").fields);
  assert.match(whole.text, /held for review/);
  assert.equal(whole.finishReason, "content-filter");
  const parts = await partsOf(asked("held-placeholder").fields);
  assert.match(textOf(parts).join(""), /held for review/);
  assert.equal(parts.at(-1).finishReason, "content-filter");
}, (surface) => surface === "chat"));

test("the confidence stands in the response's headers and body", each(async (asked, surface) => {
  const { response } = await generateText(asked("text").fields);
  checkLabel(surface, response.headers);
  checkMembers(surface, [response.body]);
}));

test("a stream's confidence is in its raw parts", each(async (asked, surface) => {
  const parts = await partsOf(asked("text", { includeRawChunks: true }).fields);
  const raw = parts.filter((part) => part.type === "raw").map((part) => part.rawValue);
  assert.ok(raw.length > 3);
  checkMembers(surface, surface === "responses" ? raw.map((event) => event.response) : raw);
}));
