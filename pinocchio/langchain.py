"""For LangChain agents: which calls of tools interrupt the run, until a person has decided.

    seen = SeenCalls()
    model = ChatOpenAI(model="gpt-5.6", base_url=URL,
                       http_client=DefaultHttpxClient(event_hooks=seen.hooks),
                       http_async_client=DefaultAsyncHttpxClient(event_hooks=seen.async_hooks))
    agent = create_agent(model, [refund_order], checkpointer=..., middleware=[
        HumanInTheLoopMiddleware(interrupt_on={"refund_order": {
            "allowed_decisions": ["approve", "edit", "reject"], "when": unsure(below=0.9)}}),
        noting(seen),                              # behind it, as the last one looks first
    ])

`when` is asked again when a run is resumed, perhaps in another process, and has to answer as
before: so `noting` writes the confidences into the message, which the checkpointer keeps, and
`unsure` reads them there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.doubt import doubt

__all__ = ["SeenCalls", "noting", "unsure"]

_NOTED = "pinocchio"  # in the message's `response_metadata`


def unsure(
    below: float | None = None, *, policy: str | PathLike[str] | None = None
) -> Callable[[Any], bool]:
    """A predicate for `when` of an `InterruptOnConfig`, by a threshold or by a policy (a pack's
    name or a file); a call without a number interrupts."""
    is_unsure = doubt(below, policy)

    def when(request: Any) -> bool:
        call = request.tool_call
        return is_unsure(call["name"], call["args"], _noted(request.state, call["id"]))

    return when


def noting(seen: SeenCalls) -> Any:
    """A middleware that writes the confidence of each call into the message that makes it.

    Imports LangChain.
    """
    base: Any = import_module("langchain.agents.middleware").AgentMiddleware

    class NotingMiddleware(base):  # type: ignore[misc]  # whose class is known to LangChain alone
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            return _with_confidences(state["messages"][-1], seen)

        async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            return _with_confidences(state["messages"][-1], seen)

    return NotingMiddleware()


def _with_confidences(message: Any, seen: SeenCalls) -> dict[str, Any] | None:
    """The change of an agent's state; None where nothing is known of the message's calls."""
    ids = [call["id"] for call in getattr(message, "tool_calls", ())]
    known = {id: seen.confidence(id) for id in ids if seen.confidence(id) is not None}
    if not known:
        return None
    metadata = {**message.response_metadata, _NOTED: known}
    return {"messages": [message.model_copy(update={"response_metadata": metadata})]}


def _noted(state: Any, call_id: str) -> float | None:
    messages = state["messages"] if isinstance(state, dict) else state.messages
    for message in reversed(messages):
        noted = getattr(message, "response_metadata", {}).get(_NOTED, {})
        if call_id in noted:
            return float(noted[call_id])
    return None
