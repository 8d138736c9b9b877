"""
title: Pinocchio
description: Shows a confidence under each message, and asks below a threshold.
version: 1.0
required_open_webui_version: 0.6.0
"""

# Paste the whole file into Open WebUI: Admin Panel, Functions, New Function; then enable it for all
# models or for some. It needs nothing but the standard library and pydantic, which Open WebUI has.

import asyncio
import json
import urllib.request
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, Field

MOST_KEPT = 1_000  # messages whose confidence arrived with their stream
NOT_SHOWN = "Not shown: you chose to leave this reply out."
Events = Callable[[dict[str, Any]], Awaitable[Any]]


class Filter:
    class Valves(BaseModel):
        priority: int = Field(default=0, description="Filters run in this order.")
        below: float = Field(default=0.5, ge=0, le=1, description="Ask below this confidence.")
        ask: bool = Field(default=True, description="Ask before such a reply is kept.")
        guardrails_url: str = Field(
            default="",
            description="Where replies that did not pass the proxy are scored: http://host:8002",
        )
        guardrails_token: str = Field(default="", description="The token of that listener.")
        timeout_s: float = Field(default=5.0, gt=0)

    def __init__(self) -> None:
        self.valves = self.Valves()
        self._seen: OrderedDict[str, float] = OrderedDict()  # by the message's id

    async def inlet(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request unchanged."""
        return body

    def stream(
        self, event: dict[str, Any], __metadata__: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Remember the confidence that the proxy put into a stream's last chunk."""
        member = event.get("pinocchio")
        number = member.get("confidence") if isinstance(member, dict) else None
        id = (__metadata__ or {}).get("message_id")
        if isinstance(number, int | float) and isinstance(id, str):
            self._seen[id] = float(number)
            while len(self._seen) > MOST_KEPT:
                self._seen.popitem(last=False)
        return event

    async def outlet(
        self,
        body: dict[str, Any],
        __event_emitter__: Events | None = None,
        __event_call__: Events | None = None,
    ) -> dict[str, Any]:
        """Show the confidence under the last message; if it is low, ask whether to keep it."""
        messages = body.get("messages") or []
        if not messages or messages[-1].get("role") != "assistant":
            return body
        number = self._seen.pop(str(body.get("id")), None)
        if number is None and self.valves.guardrails_url:
            number = await asyncio.to_thread(self._scored, messages, body.get("model"))
        label = "confidence unknown" if number is None else f"confidence {number:.2f}"
        if __event_emitter__ is not None:
            status = {"description": label, "done": True, "hidden": False}
            await __event_emitter__({"type": "status", "data": status})
        is_low = number is not None and number < self.valves.below
        if is_low and self.valves.ask and __event_call__ is not None:
            text = f"The confidence is {number:.2f}, below {self.valves.below:g}. Keep this reply?"
            dialog = {"title": label.capitalize(), "message": text}
            if await __event_call__({"type": "confirmation", "data": dialog}) is False:
                messages[-1]["content"] = NOT_SHOWN
        return body

    def _scored(self, messages: list[dict[str, Any]], model: Any) -> float | None:
        """Return the guardrails listener's confidence in the last message, None if it fails."""
        state = {
            "model": model,
            "messages": [{"role": each["role"], "content": each["content"]} for each in messages],
        }
        question = {"type": "noul", "instructions": "Is the last reply correct?"}
        body = {"model": "pinocchio", "state": state, "questions": {"correct": question}}
        request = urllib.request.Request(
            self.valves.guardrails_url.rstrip("/") + "/v1/systemone",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        if self.valves.guardrails_token:
            request.add_header("authorization", f"Bearer {self.valves.guardrails_token}")
        try:
            with urllib.request.urlopen(request, timeout=self.valves.timeout_s) as reply:
                return float(json.load(reply)["answers"]["correct"]["noul"])
        except (OSError, ValueError, KeyError, TypeError):  # the chat goes on without a number
            return None
