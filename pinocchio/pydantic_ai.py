"""For pydantic-ai: which calls of tools are deferred until a person has approved them.

    seen = SeenCalls()
    http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
    model = OpenAIChatModel("gpt-5.6", provider=OpenAIProvider(
        openai_client=AsyncOpenAI(base_url=URL, http_client=http_client)))
    toolset = FunctionToolset([refund_order]).approval_required(unsure(below=0.9, seen=seen))
    agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])

A run with such a call ends with `DeferredToolRequests`, and goes on with `DeferredToolResults`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinocchio.calls import SeenCalls

__all__ = ["SeenCalls", "unsure"]


def unsure(below: float, *, seen: SeenCalls) -> Callable[[Any, Any, Any], bool]:
    """A predicate for `approval_required`; a call without a number needs approval."""

    def approval_required(context: Any, tool: Any, arguments: Any) -> bool:
        return seen.is_unsure(context.tool_call_id or "", below)

    return approval_required
