// The confidences and marks of tool calls, for approvals that ask a person only where a call is doubtful.
//
//   const seen = seenCalls();
//   const openai = createOpenAI({ baseURL: "http://127.0.0.1:8000/v1", fetch: seen.fetch });
//   const refund = tool({ ..., needsApproval: (_, { toolCallId }) => seen.isUnsure(toolCallId, 0.3, { marked: true }) });
//
// One file without packages: copy it. It listens at `fetch`, where the replies of every provider of
// Vercel's AI SDK pass, whole or streamed. A call without a number counts as unsure. `marked: true`
// asks about marked calls as well, `marked: ["placeholder"]` about those with one of these marks.

const MOST_CALLS = 10_000;
const WEAK = ["failed_before", "not_looked_up", "unconfirmed"]; // right calls have these as often

export function seenCalls(inner = globalThis.fetch) {
  const confidences = new Map();
  const notes = new Map(); // marks and risk, by the ids of the calls
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
      for (const choice of member?.choices ?? [])
        for (const { id, risk, marks = [] } of choice.calls ?? []) keep(notes, id, { risk, marks });
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
    /** What speaks against a call, as [{ mark, argument, words }]; undefined where nobody looked. */
    async marks(id) {
      await Promise.all(open);
      return notes.get(id)?.marks;
    },
    /** How bad a wrong call would be: low, medium or high. */
    async risk(id) {
      await Promise.all(open);
      return notes.get(id)?.risk;
    },
    async isUnsure(id, below, { marked = false } = {}) {
      if (!((await this.confidence(id)) >= below)) return true;
      if (!marked) return false;
      const found = await this.marks(id);
      const counts = ({ mark }) => (marked === true ? !WEAK.includes(mark) : marked.includes(mark));
      return found === undefined || found.some(counts);
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
