"""Works through the queue over the review desk's API: approves, corrects or rejects what is held.

    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/pinocchio serve --policy helpdesk
    examples/curl.sh          # its refund, of ten times the amount that was asked for, is held
    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/python examples/review/approve.py

A reviewer's key does as well (`pinocchio keys create --role reviewer --name alice`). What is looked
up in the question here is what a program of yours would ask its database, or a person would read.
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
    """Return the decision: a refund is sent with the amount asked for, anything else is rejected."""
    calls = review["editable"]["tool_calls"]
    asked = re.search(r"\d+\.\d\d", review["question"])
    if asked is None or [call["name"] for call in calls] != ["refund_order"]:
        return {"verdict": "reject", "note": "no refund that I can check"}
    arguments = json.loads(calls[0]["arguments"])
    if arguments["amount"] == float(asked[0]):
        return {"verdict": "approve", "correct": True}
    corrected = arguments | {"amount": float(asked[0])}
    return {"verdict": "edit", "correct": False, "content": {"arguments": corrected}}


def main() -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"{DESK}/pinocchio/v1", headers=headers, trust_env=False) as desk:
        queue = desk.get("/reviews", params={"state": "open"}).raise_for_status().json()
        for item in queue["items"]:
            review = desk.get(f"/reviews/{item['id']}").raise_for_status().json()
            given = decision(review)
            told = desk.post(f"/reviews/{item['id']}/verdict", json=given)
            if told.status_code == httpx.codes.CONFLICT:  # somebody, or time, was faster
                print(f"{item['id']}: {told.json()['error']['message']}")
                continue
            done = told.raise_for_status().json()
            print(f"{done['queue']}: {given['verdict']}, {done['state']} by {done['decided_by']}")


if __name__ == "__main__":
    main()
