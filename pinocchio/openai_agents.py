"""For the OpenAI Agents SDK: which calls of tools a person has to approve.

    seen = SeenCalls()
    http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
    set_default_openai_client(AsyncOpenAI(base_url=URL, http_client=http_client))

    @function_tool(needs_approval=unsure(below=0.9, seen=seen))
    def refund_order(order_id: str, amount: float) -> str: ...

A call below the threshold ends the run with an interruption; `result.to_state()` can be kept, and
taken up in another process after `state.approve(item)` or `state.reject(item)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.doubt import doubt

__all__ = ["SeenCalls", "unsure"]


def unsure(
    below: float | None = None,
    *,
    policy: str | PathLike[str] | None = None,
    seen: SeenCalls,
) -> Callable[[Any, Any, str], Awaitable[bool]]:
    """A predicate for `needs_approval`, by a threshold or by a policy (a pack's name or a file).

    A call without a number needs approval, as does one whose reply was not seen here.
    """
    is_unsure = doubt(below, policy)

    async def needs_approval(context: Any, parameters: Any, call_id: str) -> bool:
        call = seen.get(call_id)
        return is_unsure(call.name, parameters, call.confidence)

    return needs_approval
