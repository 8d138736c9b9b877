// A run of Vercel's AI SDK that stops for a person, is kept on disk, and goes on in another process.
// `tests/client_libraries/test_desk_approvals.py` runs it: node desk_run.mjs FOLDER

import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

import { atDesk } from "../../examples/node/desk.mjs";
import { seenCalls } from "../../examples/node/seen_calls.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const folder = process.argv[2];
const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey, MODEL, APPROVALS } = process.env;
const kept = join(folder, "run.json");
mkdirSync(folder, { recursive: true });
const seen = seenCalls();
const desk = atDesk({ url: baseURL, key: apiKey, approvals: Number(APPROVALS ?? 1) });
const provider = createOpenAICompatible({ baseURL, apiKey, name: "proxied", fetch: seen.fetch });
const ship = tool({
  description: "Ship a parcel by its number.",
  inputSchema: z.object({ parcel: z.number() }),
  needsApproval: (_, { toolCallId }) => seen.isUnsure(toolCallId, 0.3),
  execute: ({ parcel }) => {
    appendFileSync(join(folder, "shipped.txt"), `${parcel}\n`);
    return `shipped ${parcel}`;
  },
});

async function run() {
  let messages = [{ role: "user", content: "Ship all parcels." }];
  if (existsSync(kept)) { // an earlier process stopped here
    messages = JSON.parse(readFileSync(kept, "utf8"));
    const decided = await desk(messages, { seen });
    if (!decided) return "waiting for a reviewer";
    messages.push(decided);
  }
  const fields = { tools: { ship }, stopWhen: stepCountIs(5), maxRetries: 0 };
  const result = await generateText({ model: provider(MODEL), messages, ...fields });
  rmSync(kept, { force: true });
  if (!result.content.some((part) => part.type === "tool-approval-request")) return result.text;
  messages.push(...result.response.messages);
  writeFileSync(kept, JSON.stringify(messages));
  await desk(messages, { seen });
  return "waiting for a reviewer";
}

console.log(await run());
