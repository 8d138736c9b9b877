"""For pydantic-ai: the tool calls that are deferred until a person has approved them.

    seen = SeenCalls()
    http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
    model = OpenAIChatModel("gpt-5.6", provider=OpenAIProvider(
        openai_client=AsyncOpenAI(base_url=URL, http_client=http_client)))
    toolset = FunctionToolset([refund_order]).approval_required(unsure(marked=True, seen=seen))
    agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])

A run with such a call ends with `DeferredToolRequests`, and continues with `DeferredToolResults`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.desk import Desk, HeldCall, StoppedCall, made_call
from pinocchio.doubt import doubt

__all__ = ["Desk", "SeenCalls", "at_desk", "unsure"]


def unsure(
    below: float | None = None,
    *,
    marked: bool | Collection[str] = False,
    policy: str | PathLike[str] | None = None,
    seen: SeenCalls,
) -> Callable[[Any, Any, Any], bool]:
    """Return a predicate for `approval_required`, True where a person has to approve.

    It tests a threshold, marks (any, or those of a list), or a policy (a pack's name or a file). A
    call without a number needs approval.
    """
    is_unsure = doubt(below, policy, marked)

    def approval_required(context: Any, tool: Any, arguments: Any) -> bool:
        """Return whether this call needs a person, by the facts that were seen about it."""
        call = seen.get(context.tool_call_id or "")
        return is_unsure(tool.name, arguments, call.confidence, call.marks, call.risk)

    return approval_required


# Review desk


def at_desk(
    desk: Desk,
    messages: Sequence[Any],
    *,
    seen: SeenCalls,
    wait_s: float = 0.0,
    run: str | None = None,
) -> Any:
    """Return the `DeferredToolResults` of a run once all calls that it deferred are decided.

    Return None while one is open. The calls are held at the desk first, so call this before the
    process ends, and again in any other process. `messages` are all messages of the run, which
    `run` names (see `Desk.hold`). Imports pydantic-ai.
    """
    calls = _open_calls(messages)
    before = list(_messages(messages))
    stopped = [
        StoppedCall(
            call.tool_call_id,
            call.tool_name,
            call.args_as_dict(),
            before,
            seen.get(call.tool_call_id).request_id,
        )
        for call in calls
    ]
    held = desk.decided(stopped, wait_s, run=run)
    if held is None:
        return None
    library: Any = import_module("pydantic_ai")
    results = library.DeferredToolResults()
    for call, each in zip(calls, held, strict=True):
        results.approvals[call.tool_call_id] = _approval(library, each)
    return results


def _approval(library: Any, held: HeldCall) -> Any:
    """Return the desk's verdict as pydantic-ai's ToolApproved or ToolDenied."""
    if held.verdict == "reject":
        return library.ToolDenied(held.refusal)
    if held.verdict == "edit":
        return library.ToolApproved(override_args=dict(held.arguments or {}))
    return library.ToolApproved()


def _open_calls(messages: Sequence[Any]) -> list[Any]:
    """Return the calls of these messages that have no answer yet, in their order."""
    parts = [part for message in messages for part in message.parts]
    kinds = ("tool-return", "retry-prompt")
    answered = {part.tool_call_id for part in parts if part.part_kind in kinds}
    calls = [part for part in parts if part.part_kind == "tool-call"]
    return [call for call in calls if call.tool_call_id not in answered]


def _messages(messages: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the conversation as messages of a chat completion, without open calls."""
    waiting = {call.tool_call_id for call in _open_calls(messages)}
    roles = {"system-prompt": "system", "user-prompt": "user", "text": "assistant"}
    for part in (part for message in messages for part in message.parts):
        if part.part_kind in roles:
            yield {"role": roles[part.part_kind], "content": str(part.content)}
        elif part.part_kind == "tool-call" and part.tool_call_id not in waiting:
            yield made_call(part.tool_call_id, part.tool_name, part.args_as_json_str())
        elif part.part_kind == "tool-return":
            content = str(part.content)
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
