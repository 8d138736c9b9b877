// One question through the proxy. Against plain OpenAI code only `baseURL` differs.
//
//   scripts/serve                                  # in another terminal
//   cd examples/node && npm ci && node quickstart.mjs

import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.PINOCCHIO_URL ?? "http://127.0.0.1:8000/v1",
  apiKey: "none needed for the demo",
});
const asked = {
  model: "demo",
  messages: [{ role: "user", content: "Is 91 a prime number?" }],
};

// The answer, with the probability that it is correct: in a header ...
const { data, response } = await client.chat.completions.create(asked).withResponse();
console.log("answer: ", data.choices[0].message.content);
console.log("header: ", response.headers.get("x-pinocchio-confidence"));

// ... and in the body. Without a number there is a status that says why (`loading`, `timeout`, ..).
console.log("body:   ", data.pinocchio.confidence, data.pinocchio.status);

// A stream arrives as fast as ever; the chunk with the finish_reason carries the confidence.
process.stdout.write("stream:  ");
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
  if (chunk.pinocchio) {
    console.log("\nfinish: ", chunk.pinocchio.confidence, chunk.pinocchio.status);
  }
}

// Errors are the client's own classes, whether upstream or the proxy found the fault. A reply that
// a policy holds is an UnprocessableEntityError with the code "held_for_review".
try {
  await client.chat.completions.create({ ...asked, messages: [] });
} catch (error) {
  if (!(error instanceof OpenAI.BadRequestError)) throw error;
  console.log("error:  ", error.status, error.code, error.param);
}
