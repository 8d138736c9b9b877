"""For LangChain agents: the tool calls that interrupt a run until a person has decided.

    seen = SeenCalls()
    model = ChatOpenAI(model="gpt-5.6", base_url=URL,
                       http_client=DefaultHttpxClient(event_hooks=seen.hooks),
                       http_async_client=DefaultAsyncHttpxClient(event_hooks=seen.async_hooks))
    agent = create_agent(model, [refund_order], checkpointer=..., middleware=[
        HumanInTheLoopMiddleware(interrupt_on={"refund_order": {
            "allowed_decisions": ["approve", "edit", "reject"], "when": unsure(marked=True)}}),
        noting(seen),                              # behind it, as the last one looks first
    ])

`when` is called again when a run is resumed, perhaps in another process, and has to return the
same. So `noting` writes the confidences into the message, which the checkpointer keeps, and
`unsure` reads them only there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.desk import Desk, HeldCall, StoppedCall
from pinocchio.doubt import doubt

__all__ = ["Desk", "SeenCalls", "at_desk", "noting", "unsure"]

_NOTED, _REQUEST = "pinocchio", "pinocchio_request"  # in the message's `response_metadata`
_NOTES = "pinocchio_calls"


def unsure(
    below: float | None = None,
    *,
    marked: bool | Collection[str] = False,
    policy: str | PathLike[str] | None = None,
) -> Callable[[Any], bool]:
    """Return a predicate for `when` of an `InterruptOnConfig`.

    It tests a threshold, marks (any, or those of a list), or a policy (a pack's name or a file). A
    call without a number interrupts.
    """
    is_unsure = doubt(below, policy, marked)

    def when(request: Any) -> bool:
        """Return whether this call of the agent needs a person."""
        call = request.tool_call
        confidence, marks, risk = _find_note(request.state, call["id"])
        return is_unsure(call["name"], call["args"], confidence, marks, risk)

    return when


def noting(seen: SeenCalls) -> Any:
    """Return a middleware that writes the facts about each call into the message that makes it.

    They are in the `response_metadata` of the message. Imports LangChain.
    """
    base: Any = import_module("langchain.agents.middleware").AgentMiddleware

    class NotingMiddleware(base):  # type: ignore[misc]  # the base is known only at run time
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            """Return the message with the facts about its calls, None where all are unknown."""
            return _with_confidences(state["messages"][-1], seen)

        async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            """Return the message with the facts about its calls, None where all are unknown."""
            return _with_confidences(state["messages"][-1], seen)

    return NotingMiddleware()


def _with_confidences(message: Any, seen: SeenCalls) -> dict[str, Any] | None:
    """Return a change of the agent's state: the message with the facts about its calls.

    Return None where nothing is known of its calls.
    """
    ids = [call["id"] for call in getattr(message, "tool_calls", ())]
    confidences = {id: seen.confidence(id) for id in ids if seen.confidence(id) is not None}
    request_id = seen.get(ids[0]).request_id if ids else None
    if not confidences and request_id is None:
        return None
    calls = {id: seen.get(id) for id in ids}
    notes = {
        id: {"marks": [[*pair] for pair in call.marks], "risk": call.risk}
        for id, call in calls.items()
        if call.marks is not None
    }
    metadata = {
        **message.response_metadata,
        _NOTED: confidences,
        _REQUEST: request_id,
        _NOTES: notes,
    }
    return {"messages": [message.model_copy(update={"response_metadata": metadata})]}


def _find_note(state: Any, call_id: str) -> tuple[float | None, Any, str | None]:
    """Return the confidence, the marks and the risk noted for a call, each None if missing."""
    messages = state["messages"] if isinstance(state, dict) else state.messages
    for message in reversed(messages):
        metadata = getattr(message, "response_metadata", {})
        if call_id in metadata.get(_NOTED, {}):
            notes = metadata.get(_NOTES, {}).get(call_id, {})
            return float(metadata[_NOTED][call_id]), notes.get("marks"), notes.get("risk")
    return None, None, None


# Review desk


def at_desk(desk: Desk, agent: Any, thread: Any, *, wait_s: float = 0.0) -> Any:
    """Return the argument of `Command(resume=..)` once all calls that stop a thread are decided.

    Return None while one is open. The calls are held at the desk first, so call this before the
    process ends, and again in any other process. `thread` is the configuration that the agent was
    invoked with; its id names the run.
    """
    state = agent.get_state(thread)
    interrupts = [each for task in state.tasks for each in task.interrupts]
    messages = state.values["messages"]
    stopped = [_stopped_by(each.value, messages) for each in interrupts]
    run = thread.get("configurable", {}).get("thread_id")
    all_calls = [call for calls in stopped for call in calls]
    held = desk.decided(all_calls, wait_s, run=None if run is None else str(run)[:256])
    if held is None:
        return None
    remaining = iter(held)
    answers: dict[str, Any] = {}
    for interrupt, calls in zip(interrupts, stopped, strict=True):
        decisions = [_decision(next(remaining)) for _ in calls]
        is_one = "tool_call_id" in interrupt.value
        answers[interrupt.id] = decisions[0] if is_one else {"decisions": decisions}
    return answers


def _stopped_by(value: Any, messages: Any) -> list[StoppedCall]:
    """Return the calls that an interrupt is about, each with the conversation before it.

    Where the interrupt has no ids, its requests are matched by name and arguments with the calls of
    the last message that makes any.
    """
    at = max(i for i, each in enumerate(messages) if getattr(each, "tool_calls", None))
    calls = [*messages[at].tool_calls]
    convert = import_module("langchain_core.messages").convert_to_openai_messages
    before = convert(messages[:at])
    request_id = messages[at].response_metadata.get(_REQUEST)
    if "tool_call_id" in value:
        return [
            StoppedCall(value["tool_call_id"], value["name"], value["args"], before, request_id)
        ]
    stopped = []
    for request in value["action_requests"]:
        name, arguments = request["name"], request["args"]
        call = next(each for each in calls if (each["name"], each["args"]) == (name, arguments))
        calls.remove(call)
        stopped.append(StoppedCall(call["id"], name, arguments, before, request_id))
    return stopped


def _decision(held: HeldCall) -> dict[str, Any]:
    """Return the desk's verdict as a decision of LangChain, a dict with `type`.

    `reject` has the refusal as `message`, `edit` has `edited_action` with name and arguments. Any
    other verdict is `approve`.
    """
    if held.verdict == "reject":
        return {"type": "reject", "message": held.refusal}
    if held.verdict == "edit":
        return {"type": "edit", "edited_action": {"name": held.name, "args": held.arguments}}
    return {"type": "approve"}
