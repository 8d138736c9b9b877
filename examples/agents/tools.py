"""The tools of the example agents. Each call is made once; the same id returns the same result.

This makes an agent safe to kill: the ledger contains exactly the calls that were made.
"""

import json
import os
from pathlib import Path
from typing import Any

LEDGER = Path(os.environ.get("AGENT_LEDGER", "ledger.jsonl"))

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "refund_order",
            "description": "Pay back an amount of an order to the customer.",
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
                "required": ["order_id", "amount"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "set_room_temperature",
            "description": "Set the target temperature of a room.",
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string"}, "celsius": {"type": "number"}},
                "required": ["room", "celsius"],
            },
        },
    },
]


def perform(call_id: str, name: str, arguments: dict[str, Any]) -> str:
    """Perform a call unless it is done already; return the result in words."""
    lines = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    done = {entry["call_id"]: entry for entry in map(json.loads, lines)}
    if call_id not in done:
        entry = {"call_id": call_id, "tool": name, "arguments": arguments}
        with LEDGER.open(
            "a"
        ) as ledger:  # a real tool pays here, with the id as its idempotency key
            ledger.write(json.dumps(entry) + "\n")
    return f"done: {name} {json.dumps(arguments)}"
