"""The calls of tools in a reply, as a reviewer has to see them: name, arguments, what is odd."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from proxy.desk.conversation import answered


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call of a tool; `arguments` is its text, by rule a JSON object."""

    name: str
    arguments: str

    @property
    def values(self) -> dict[str, Any] | None:
        """The arguments by their names; None where the text is no JSON object."""
        try:
            values = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) else None

    @property
    def line(self) -> str:
        """The call as code: `refund_order(order_id="A-1", amount=84.2)`."""
        if (values := self.values) is None:
            return f"{self.name}({self.arguments})"
        told = (f"{name}={_written(value)}" for name, value in values.items())
        return f"{self.name}({', '.join(told)})"


def calls_in(reply: bytes, path: str | None) -> list[WaitingCall]:
    """The calls of all choices of a reply, in their order."""
    parts = (part for turn in answered(reply, path) for part in turn.calls)
    return [WaitingCall(part.name, part.text) for part in parts]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
