// The official Node client against a proxy: only `baseURL` differs from a program without it.
// `tests/client_libraries/test_node_client.py` starts proxy and upstream, runs this file once, makes a test of each
// of its tests, and looks at what arrived upstream under the names in `x-case`.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI, { AzureOpenAI } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const { PINOCCHIO_URL, UPSTREAM_URL } = process.env;
const user = (content) => [{ role: "user", content }];
const named = (name, headers = {}) => ({ headers: { "x-case": name, ...headers } });

function client(options = {}) {
  return new OpenAI({ baseURL: PINOCCHIO_URL, apiKey: "sk-client", maxRetries: 0, ...options });
}

/** The error that a promise ends with. */
async function failureOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("nothing was thrown");
}

async function chunksOf(stream) {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return chunks;
}

/** What the client got, without the one member that is ours. */
function withoutMember({ pinocchio, ...rest }) {
  return rest;
}

// --- completions and streams ---------------------------------------------------------------------

test("a completion carries its confidence in a header and in the body", async () => {
  const { data, response, request_id } = await client()
    .chat.completions.create({ model: "ok", messages: user("Paris p=0.92") })
    .withResponse();
  assert.equal(data.choices[0].message.content, "Paris p=0.92");
  assert.equal(response.headers.get("x-pinocchio-confidence"), "0.9200");
  assert.equal(data.pinocchio.confidence, 0.92);
  assert.equal(data.pinocchio.status, "scored");
  assert.equal(request_id, "req_upstream_1");
});

test("the class for Azure needs another endpoint only", async () => {
  const endpoint = new URL(PINOCCHIO_URL).origin;
  const azure = new AzureOpenAI({ endpoint, apiKey: "azure-key", apiVersion: "2024-10-21" });
  const asked = { model: "ok", messages: user("Paris p=0.92") };
  const completion = await azure.chat.completions.create(asked);
  assert.equal(completion.pinocchio.confidence, 0.92);
  const chunks = await chunksOf(azure.chat.completions.create({ ...asked, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""), "Paris p=0.92");
});

test("every choice has its own confidence, and the lowest speaks for all", async () => {
  const { data, response } = await client()
    .chat.completions.create({ model: "ok", n: 2, messages: user("p=0.9|p=0.2") })
    .withResponse();
  assert.deepEqual(data.pinocchio.choices.map((choice) => choice.confidence), [0.9, 0.2]);
  assert.equal(response.headers.get("x-pinocchio-confidence"), "0.2000");
});

test("a stream carries its confidence in the finish chunk alone", async () => {
  const chunks = await chunksOf(
    client().chat.completions.create({
      model: "ok",
      stream: true,
      stream_options: { include_usage: true },
      messages: user("Paris p=0.92"),
    }),
  );
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, "Paris p=0.92");
  const judged = chunks.filter((chunk) => chunk.pinocchio);
  assert.deepEqual(judged.map((chunk) => chunk.choices[0].finish_reason), ["stop"]);
  assert.equal(judged[0].pinocchio.confidence, 0.92);
  assert.equal(chunks.at(-1).usage.total_tokens, 7);
});

test("the client's stream helper puts the completion together, member included", async () => {
  const stream = client().chat.completions.stream({ model: "ok", messages: user("Paris p=0.92") });
  const completion = await stream.finalChatCompletion();
  assert.equal(completion.choices[0].message.content, "Paris p=0.92");
  assert.equal(completion.pinocchio.confidence, 0.92);
});

test("requests at the same time get their own answers and confidences", async () => {
  const asked = Array.from({ length: 20 }, (_, i) => `p=0.${String(i + 10)}`);
  const answers = await Promise.all(
    asked.map((text) => client().chat.completions.create({ model: "ok", messages: user(text) })),
  );
  assert.deepEqual(answers.map((answer) => answer.choices[0].message.content), asked);
  assert.deepEqual(
    answers.map((answer) => answer.pinocchio.confidence),
    asked.map((text) => Number(text.slice(2))),
  );
});

test("what the client gets is what it gets without the proxy, but for one member", async () => {
  for (const model of ["ok", "vendor", "reasoning", "tools", "empty", "gzip", "br", "split"]) {
    const body = { model, messages: user("caf\u00e9 \u{1f34b}"), seed: 1, made_up: { a: 1.5 } };
    const whole = (baseURL, name) =>
      client({ baseURL }).chat.completions.create(body, named(`${name} ${model}`));
    const answer = await whole(PINOCCHIO_URL, "via");
    assert.equal(answer.pinocchio.status, "scored", model);
    assert.deepEqual(withoutMember(answer), await whole(UPSTREAM_URL, "direct"), model);
  }
  for (const model of ["ok", "vendor", "reasoning", "tools", "split", "crlf", "no-done"]) {
    const body = { model, messages: user("caf\u00e9 \u{1f34b}"), stream: true };
    const streamed = (baseURL, name) =>
      chunksOf(client({ baseURL }).chat.completions.create(body, named(`${name} ${model} stream`)));
    const chunks = await streamed(PINOCCHIO_URL, "via");
    assert.equal(chunks.filter((chunk) => chunk.pinocchio).length, 1, model);
    assert.deepEqual(chunks.map(withoutMember), await streamed(UPSTREAM_URL, "direct"), model);
  }
});

test("models are those of upstream", async () => {
  const ids = [];
  for await (const model of client().models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["ok"]);
});

test("a surface that is not scored says so", async () => {
  const { response } = await client().moderations.create({ input: "hello" }).withResponse();
  assert.equal(response.headers.get("x-pinocchio-confidence-status"), "not_supported");
  assert.equal(response.headers.get("x-pinocchio-confidence"), null);
});

// --- tools and structured outputs ----------------------------------------------------------------

const REMIND = "Remind me today to water the plants at 8:00 and to ring Jonas at 17:30.";
const REMINDERS = [
  { text: "Water the plants", time: "08:00" },
  { text: "Ring Jonas", time: "17:30" },
];

function reminderTool(called = []) {
  const parameters = {
    type: "object",
    properties: { text: { type: "string" }, time: { type: "string" } },
  };
  const add = (reminder) => {
    called.push(reminder);
    return "noted";
  };
  return { type: "function", function: { name: "add_reminder", parameters, parse: JSON.parse, function: add } };
}

test("tool calls arrive whole, with a confidence", async () => {
  const completion = await client().chat.completions.create({
    model: "demo",
    messages: user(REMIND),
    tools: [reminderTool()],
  });
  const calls = completion.choices[0].message.tool_calls;
  assert.deepEqual(calls.map((call) => JSON.parse(call.function.arguments)), REMINDERS);
  assert.equal(completion.pinocchio.status, "scored");
});

test("streamed tool calls arrive in pieces and fit together", async () => {
  const stream = client().chat.completions.stream({
    model: "demo",
    messages: user(REMIND),
    tools: [reminderTool()],
  });
  const done = [];
  stream.on("tool_calls.function.arguments.done", (call) => done.push(JSON.parse(call.arguments)));
  const completion = await stream.finalChatCompletion();
  assert.deepEqual(done, REMINDERS);
  assert.equal(completion.choices[0].finish_reason, "tool_calls");
  assert.equal(completion.pinocchio.status, "scored");
});

for (const stream of [false, true]) {
  test(`the client's tool runner calls the tools and sends their results: stream ${stream}`, async () => {
    const called = [];
    const runner = client().chat.completions.runTools({
      model: "demo",
      messages: user(REMIND),
      tools: [reminderTool(called)],
      stream,
    });
    assert.equal(await runner.finalContent(), "The tool answered: noted");
    assert.deepEqual(called, REMINDERS);
  });
}

const Ticket = z.object({ category: z.enum(["billing", "bug", "other"]), urgent: z.boolean() });
const TICKET = {
  model: "demo",
  messages: user(
    'Sort this ticket and answer with JSON only, with the keys "category" (billing, bug or other) ' +
      'and "urgent" (true or false): "You took the money for my plan twice, I need it back today!"',
  ),
  response_format: zodResponseFormat(Ticket, "ticket"),
};

test("structured outputs are parsed, with a confidence", async () => {
  const completion = await client().chat.completions.parse(TICKET);
  assert.deepEqual(completion.choices[0].message.parsed, { category: "billing", urgent: true });
  assert.equal(completion.pinocchio.status, "scored");
});

test("streamed structured outputs are parsed", async () => {
  const completion = await client().chat.completions.stream(TICKET).finalChatCompletion();
  assert.deepEqual(completion.choices[0].message.parsed, { category: "billing", urgent: true });
});

// --- errors --------------------------------------------------------------------------------------

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

test("an error of upstream's has its class, its code and its request id", async () => {
  for (const [status, kind] of Object.entries(ERRORS)) {
    for (const stream of [false, true]) {
      const asked = { model: `status-${status}`, messages: user("hi"), stream };
      const error = await failureOf(client().chat.completions.create(asked));
      assert.ok(error instanceof kind, `${status} is a ${error.constructor.name}`);
      assert.equal(error.requestID, "req_upstream_1");
      assert.deepEqual([error.code, error.param, error.type], ["c", "p", "t"]);
      assert.equal(error.error.vendor, 1);
      assert.equal(error.headers.get("x-pinocchio-error"), null);
    }
  }
});

test("a rate limit error keeps upstream's headers", async () => {
  const asked = { model: "status-429", messages: user("hi") };
  const error = await failureOf(client().chat.completions.create(asked));
  assert.ok(error instanceof OpenAI.RateLimitError);
  assert.equal(error.headers.get("retry-after"), "7");
  assert.equal(error.headers.get("x-ratelimit-remaining-requests"), "0");
  assert.equal(error.headers.get("x-ratelimit-reset-requests"), "7s");
});

test("the client retries as often as it would without the proxy", async () => {
  const asked = { model: "status-500", messages: user("hi") };
  const error = await failureOf(
    client({ maxRetries: 1 }).chat.completions.create(asked, named("retried")),
  );
  assert.ok(error instanceof OpenAI.InternalServerError);
});

for (const stream of [false, true]) {
  test(`a held reply is a 422 that is not retried: stream ${stream}`, async () => {
    const error = await failureOf(
      client({ maxRetries: 2 }).chat.completions.create(
        { model: "ok", messages: user("p=0.9"), stream },
        named(`held ${stream}`, { "x-pinocchio-tags": "held" }),
      ),
    );
    assert.ok(error instanceof OpenAI.UnprocessableEntityError);
    assert.equal(error.code, "held_for_review");
    assert.equal(error.headers.get("x-pinocchio-error"), "true");
    const id = error.headers.get("x-pinocchio-review-id");
    const placeholder = await client().chat.completions.retrieve(id);
    assert.equal(placeholder.id, id);
    assert.equal(placeholder.choices[0].finish_reason, "content_filter");
  });
}

test("a mistake that the proxy finds is the client's own kind of error", async () => {
  const asked = { model: "ok", messages: user("hi") };
  const error = await failureOf(
    client().chat.completions.create(asked, { headers: { "content-encoding": "lzma" } }),
  );
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.equal(error.code, "unsupported_encoding");
  assert.equal(error.headers.get("x-pinocchio-error"), "true");
});

test("an upstream that hangs up is a 502 with a code", async () => {
  const asked = { model: "hang-up", messages: user("hi") };
  const error = await failureOf(client().chat.completions.create(asked));
  assert.ok(error instanceof OpenAI.InternalServerError);
  assert.deepEqual([error.status, error.code], [502, "upstream_broke_off"]);
});

test("a stream that breaks off ends with an error, never as if it were whole", async () => {
  for (const [model, code] of [["cut", "upstream_broke_off"], ["error-event", "boom"]]) {
    const asked = { model, messages: user("a long answer"), stream: true };
    const error = await failureOf(chunksOf(client().chat.completions.create(asked)));
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.equal(error.code, code);
  }
});

// --- cancellation and timeouts -------------------------------------------------------------------

test("aborting a request reaches upstream", async () => {
  const aborter = new AbortController();
  setTimeout(() => aborter.abort(), 200);
  const asked = { model: "slow", messages: user("hi") };
  const error = await failureOf(
    client().chat.completions.create(asked, { ...named("aborted"), signal: aborter.signal }),
  );
  assert.ok(error instanceof OpenAI.APIUserAbortError);
});

test("aborting a stream reaches upstream", async () => {
  const aborter = new AbortController();
  const stream = await client().chat.completions.create(
    { model: "endless", messages: user("hi"), stream: true },
    { ...named("aborted"), signal: aborter.signal },
  );
  let count = 0;
  for await (const _ of stream) if (++count === 3) aborter.abort();
  assert.ok(count >= 3);
});

test("leaving a stream reaches upstream", async () => {
  const stream = await client().chat.completions.create(
    { model: "endless", messages: user("hi"), stream: true },
    named("aborted"),
  );
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
});

test("the client's timeout holds, and reaches upstream", async () => {
  const asked = { model: "slow", messages: user("hi") };
  const error = await failureOf(
    client({ timeout: 300 }).chat.completions.create(asked, named("aborted")),
  );
  assert.ok(error instanceof OpenAI.APIConnectionTimeoutError);
});
