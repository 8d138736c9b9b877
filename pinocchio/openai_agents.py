"""For the OpenAI Agents SDK: the tool calls that a person has to approve.

    seen = SeenCalls()
    http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
    set_default_openai_client(AsyncOpenAI(base_url=URL, http_client=http_client))

    @function_tool(needs_approval=unsure(marked=True, seen=seen))
    def refund_order(order_id: str, amount: float) -> str: ...

A call below the threshold ends the run with an interruption. `result.to_state()` can be kept, and
resumed in another process after `state.approve(item)` or `state.reject(item)`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.desk import Desk, StoppedCall, made_call
from pinocchio.doubt import doubt

__all__ = ["Desk", "SeenCalls", "at_desk", "unsure"]

CHANGED = "A reviewer changed this call. Make it again, with just these arguments: "


def unsure(
    below: float | None = None,
    *,
    marked: bool | Collection[str] = False,
    policy: str | PathLike[str] | None = None,
    seen: SeenCalls,
) -> Callable[[Any, Any, str], Awaitable[bool]]:
    """Return an asynchronous predicate for `needs_approval`, True where a person has to approve.

    It tests a threshold, marks (any, or those of a list), or a policy (a pack's name or a file). A
    call without a number needs approval, as does one whose reply was not seen here.
    """
    is_unsure = doubt(below, policy, marked)

    async def needs_approval(context: Any, parameters: Any, call_id: str) -> bool:
        """Return whether this call needs a person, by the facts that were seen about it."""
        call = seen.get(call_id)
        return is_unsure(call.name, parameters, call.confidence, call.marks, call.risk)

    return needs_approval


# Review desk


def at_desk(
    desk: Desk,
    state: Any,
    *,
    seen: SeenCalls,
    wait_s: float = 0.0,
    run: str | None = None,
) -> bool:
    """Approve and reject calls in a `RunState` once all its interruptions are decided.

    Return False while one is open. The calls are held at the desk first, so call this before the
    process ends, and again in any other process. `run` names the run, see `Desk.hold`. The SDK
    cannot edit calls, so a changed call is rejected, and the model is asked to make it with the new
    arguments.
    """
    items = state.get_interruptions()
    messages = list(_messages(state.to_json()))
    stopped = [
        StoppedCall(
            item.call_id,
            item.name,
            item.arguments or "{}",
            messages,
            seen.get(item.call_id).request_id,
        )
        for item in items
    ]
    held = desk.decided(stopped, wait_s, run=run)
    if held is None:
        return False
    for item, each in zip(items, held, strict=True):
        if each.verdict == "approve":
            state.approve(item)
        elif each.verdict == "edit":
            state.reject(item, rejection_message=CHANGED + json.dumps(each.arguments))
        else:
            state.reject(item, rejection_message=each.refusal)
    return True


def _messages(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the conversation of a run as messages of a chat completion.

    Calls without an answer, which are waiting, are left out. `state` is the JSON form of a
    RunState.
    """
    original = state["original_input"]
    items = [{"role": "user", "content": original}] if isinstance(original, str) else [*original]
    items += [each["raw_item"] for each in state["generated_items"]]
    answered = {each.get("call_id") for each in items if str(each.get("type")).endswith("_output")}
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind == "function_call" and call_id in answered:
            yield made_call(item["call_id"], item["name"], item["arguments"])
        elif kind == "function_call_output":
            yield {"role": "tool", "tool_call_id": call_id, "content": str(item.get("output"))}
        elif isinstance(item.get("role"), str):
            yield {"role": item["role"], "content": _text_of(item.get("content"))}


def _text_of(content: Any) -> str:
    """Return the text of a message's content: text itself, or the text parts of a list."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
