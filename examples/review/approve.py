"""Approve, correct or reject held replies over the API of the review desk.

    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/pinocchio serve --policy helpdesk
    examples/curl.sh          # its refund, ten times the amount asked for, is held
    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/python examples/review/approve.py

A reviewer's key works as well (`pinocchio keys create --role reviewer --name alice`). This program
reads the amount from the question; yours would look it up in a database.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import httpx

DESK = os.environ.get("PINOCCHIO_DESK_URL", "http://127.0.0.1:8001")
TOKEN = os.environ["PINOCCHIO_ADMIN_TOKEN"]


def decision(review: dict[str, Any]) -> dict[str, Any]:
    """Return the decision: send a refund with the amount asked for, reject anything else."""
    calls = review["editable"]["tool_calls"]
    amount = re.search(r"\d+\.\d\d", review["question"])
    if amount is None or [call["name"] for call in calls] != ["refund_order"]:
        return {"verdict": "reject", "note": "no refund that I can check"}
    arguments = json.loads(calls[0]["arguments"])
    if arguments["amount"] == float(amount[0]):
        return {"verdict": "approve", "correct": True}
    corrected = arguments | {"amount": float(amount[0])}
    return {"verdict": "edit", "correct": False, "content": {"arguments": corrected}}


def main() -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"{DESK}/pinocchio/v1", headers=headers, trust_env=False) as desk:
        queue = desk.get("/reviews", params={"state": "open"}).raise_for_status().json()
        for item in queue["items"]:
            review = desk.get(f"/reviews/{item['id']}").raise_for_status().json()
            verdict = decision(review)
            response = desk.post(f"/reviews/{item['id']}/verdict", json=verdict)
            if response.status_code == httpx.codes.CONFLICT:  # decided by another, or expired
                print(f"{item['id']}: {response.json()['error']['message']}")
                continue
            done = response.raise_for_status().json()
            print(f"{done['queue']}: {verdict['verdict']}, {done['state']} by {done['decided_by']}")


if __name__ == "__main__":
    main()
