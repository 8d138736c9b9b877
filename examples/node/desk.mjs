// The review desk, for runs of Vercel's AI SDK that stop before a call of a tool.
//
//   const desk = atDesk({ url: "http://127.0.0.1:8000/v1", key, queue: "approvals" });
//                        // and approvals: 2, expiresS: 3600, escalate: { after_s: 600, to: "leads" }
//                        // and below: 0.7, the threshold at which it stops, for reviewers to see
//   const messages = [...asked, ...result.response.messages];   // keep them: they are the run
//   const decided = await desk(messages, { seen });             // null while one call is open
//   if (decided) await generateText({ ..., messages: [...messages, decided] });
//
// One file without packages: copy it. Call it once before the process ends, which puts the calls at
// the desk, and again in any process. The same call of the same key is there once. An approval is for
// one run, which `run: "..."` names. The SDK has no edit: of a changed call the model is told to make
// it anew.

const CHANGED = "A reviewer changed this call. Make it again, with just these arguments: ";
const REFUSED = "A reviewer rejected this call, or nobody approved it in time.";

const RESTARTING = [502, 503, 504]; // of what stands before a proxy that is not there

export function atDesk({ url, key, queue, expiresS, escalate, approvals, below, patienceS = 60 }) {
  const calls = `${url.replace(/\/+$/, "").replace(/\/v1$/, "")}/pinocchio/v1/calls`;
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };

  // A proxy that restarts is asked again for a minute: what it holds survives.
  async function ask(at, options) {
    const giveUp = Date.now() + patienceS * 1_000;
    for (;;) {
      const reply = await fetch(at, { headers, ...options }).catch((error) => {
        if (Date.now() > giveUp) throw error;
      });
      const isThere = reply && !(RESTARTING.includes(reply.status) && Date.now() < giveUp);
      if (isThere) return read(reply, at);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }

  async function read(reply, at) {
    const told = await reply.json().catch(() => ({}));
    if (reply.ok && told.review_id) return told;
    const { code, message } = told.error ?? {};
    if (reply.ok || !code || code === "unknown_url" || code.startsWith("upstream_")) {
      throw new Error(`no review desk at ${new URL(at).origin}; is this the proxy?`);
    }
    throw new Error(`${reply.status} ${code}: ${message}`);
  }

  return async function decided(messages, { seen, waitS = 0, run } = {}) {
    const content = [];
    for (const { approvalId, toolCallId, toolName, input } of waiting(messages)) {
      const call = { id: toolCallId, name: toolName, arguments: input };
      const fields = { queue, expires_s: expiresS, escalate, approvals, below, run };
      const asked = { call, messages: conversation(messages), ...fields };
      const body = JSON.stringify({ ...asked, request_id: await seen?.requestId(toolCallId) });
      let told = await ask(calls, { method: "POST", body });
      if (!told.verdict && waitS) told = await ask(`${calls}/${told.review_id}?wait_s=${waitS}`);
      if (!told.verdict) content.push(null);
      else content.push({ type: "tool-approval-response", approvalId, ...answer(told) });
    }
    return content.includes(null) ? null : { role: "tool", content };
  };
}

function answer({ verdict, message, arguments: changed }) {
  if (verdict === "approve") return { approved: true };
  const reason = verdict === "edit" ? CHANGED + JSON.stringify(changed) : (message ?? REFUSED);
  return { approved: false, reason };
}

const partsOf = ({ content }) => (Array.isArray(content) ? content : []);

/** The calls that ask for an approval, and have none. */
function waiting(messages) {
  const parts = messages.flatMap(partsOf);
  const answered = new Set(
    parts.filter((part) => part.type === "tool-approval-response").map((part) => part.approvalId),
  );
  return parts
    .filter((part) => part.type === "tool-approval-request" && !answered.has(part.approvalId))
    .map(({ approvalId, toolCallId }) => {
      const call = parts.find((part) => part.type === "tool-call" && part.toolCallId === toolCallId);
      return { ...call, approvalId };
    });
}

/** The run as messages of a chat completion, up to the calls that wait. */
function conversation(messages) {
  const open = new Set(waiting(messages).map((call) => call.toolCallId));
  const found = [];
  for (const { role, content } of messages) {
    if (typeof content === "string") found.push({ role, content });
    for (const part of partsOf({ content })) {
      const { type, toolCallId: id } = part;
      if (type === "text") found.push({ role, content: part.text });
      if (type === "tool-call" && !open.has(id)) {
        const call = { name: part.toolName, arguments: JSON.stringify(part.input) };
        const tool_calls = [{ id, type: "function", function: call }];
        found.push({ role: "assistant", content: null, tool_calls });
      }
      if (type === "tool-result") {
        const text = typeof part.output?.value === "string" ? part.output.value : JSON.stringify(part.output);
        found.push({ role: "tool", tool_call_id: id, content: text });
      }
    }
  }
  return found;
}
