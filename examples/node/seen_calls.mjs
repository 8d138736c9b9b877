// The confidences of tool calls, for approvals that ask a person only where the number is low.
//
//   const seen = seenCalls();
//   const openai = createOpenAI({ baseURL: "http://127.0.0.1:8000/v1", fetch: seen.fetch });
//   const refund = tool({ ..., needsApproval: (_, { toolCallId }) => seen.isUnsure(toolCallId, 0.9) });
//
// One file without packages: copy it. It listens at `fetch`, where the replies of every provider of
// Vercel's AI SDK pass, whole or streamed. A call without a number counts as unsure.

const MOST_CALLS = 10_000;

export function seenCalls(inner = globalThis.fetch) {
  const confidences = new Map();
  const requests = new Map(); // the proxy's ids of the requests, by those of their calls
  const open = new Set(); // replies that are still being read

  function note(text, isStream) {
    const lines = isStream ? text.split(/\r?\n/).filter((line) => line.startsWith("data:")) : [text];
    const calls = new Set();
    let confidence;
    let request;
    for (const line of lines) {
      let found;
      try {
        found = JSON.parse(isStream ? line.slice(5) : line);
      } catch {
        continue; // [DONE]
      }
      const member = found?.pinocchio ?? found?.response?.pinocchio;
      if (typeof member?.confidence === "number") confidence = member.confidence;
      request = member?.request_id ?? request;
      addCalls(found, calls);
    }
    for (const id of calls) {
      keep(confidences, id, confidence);
      keep(requests, id, request);
    }
  }

  function keep(map, id, value) {
    if (value === undefined) return;
    map.delete(id);
    map.set(id, value);
    if (map.size > MOST_CALLS) map.delete(map.keys().next().value);
  }

  return {
    async fetch(...request) {
      const response = await inner(...request);
      const kind = response.headers.get("content-type") ?? "";
      const isStream = kind.startsWith("text/event-stream");
      if (!response.body || !(isStream || kind.startsWith("application/json"))) return response;
      const reading = response.clone().text().then((text) => note(text, isStream), () => {});
      open.add(reading);
      reading.finally(() => open.delete(reading));
      return response;
    },
    /** P(correct) of the reply that made this call; undefined where there is no number. */
    async confidence(id) {
      await Promise.all(open); // a call can be acted on before the event that has the number
      return confidences.get(id);
    },
    /** The proxy's id of the request whose reply made this call. */
    async requestId(id) {
      await Promise.all(open);
      return requests.get(id);
    },
    async isUnsure(id, below) {
      return !((await this.confidence(id)) >= below);
    },
  };
}

/** The ids of calls, in chat completions, responses and messages. */
function addCalls(part, calls) {
  if (Array.isArray(part)) return part.forEach((each) => addCalls(each, calls));
  if (part === null || typeof part !== "object") return;
  const isCall = "function" in part || ["tool_use", "custom"].includes(part.type);
  const id = isCall ? part.id : part.call_id;
  if (typeof id === "string") calls.add(id);
  for (const [name, each] of Object.entries(part)) if (name !== "pinocchio") addCalls(each, calls);
}
