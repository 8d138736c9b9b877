"""A judge rates every answer; its weight comes from a prior, and then from reviewers' verdicts.

    PINOCCHIO_ADMIN_TOKEN=a-long-secret scripts/serve --config examples/judge/proxy.yaml
    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/python examples/judge/learn.py

Here the verdicts come from the demo's answer key; your reviewers give them in the console.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from proxy.upstreams.demo.demo import rows

CONFIG = os.environ.get("PINOCCHIO_CONFIG", str(Path(__file__).with_name("proxy.yaml")))
URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
DESK = os.environ.get("PINOCCHIO_DESK_URL", "http://127.0.0.1:8001")
TOKEN = os.environ["PINOCCHIO_ADMIN_TOKEN"]
PEOPLE = ("ann", "bob", "eve")  # for one person, the same question counts once

client = OpenAI(base_url=URL, api_key="none-needed", max_retries=0)


def ask(question: str, person: str) -> dict[str, Any]:
    """Return the answer's `pinocchio` member, which includes the judge's verdict."""
    completion = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": question}], user=person
    )
    member: dict[str, Any] = (completion.model_extra or {})["pinocchio"]
    return member


def give_verdicts(desk: httpx.Client) -> int:
    """Give every audited reply its verdict; return how many there were."""
    right = {row.content for row in rows() if row.correct}
    count = 0
    while items := desk.get("/reviews", params={"queue": "audit"}).json()["items"]:
        for item in items:
            reply = desk.get(f"/reviews/{item['id']}").json()["reply"]
            is_right = reply["choices"][0]["message"]["content"] in right
            verdict = {"verdict": "approve" if is_right else "reject", "correct": is_right}
            desk.post(f"/reviews/{item['id']}/verdict", json=verdict).raise_for_status()
            count += 1
    return count


def show(question: str, member: dict[str, Any]) -> None:
    print(question)
    print("  confidence:", member["confidence"], member["calibrator"])
    for each in member.get("evidence", []):
        counts = "counts" if each["counts"] else "does not count"
        print(f"  judge: {each['p_correct']} by {each['by']}, {counts}, before {each['before']}")


if __name__ == "__main__":
    questions = list(dict.fromkeys(row.question for row in rows() if row.content))
    members = {question: [ask(question, person) for person in PEOPLE] for question in questions}
    for question in questions[:2]:
        show(question, members[question][0])
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"{DESK}/pinocchio/v1", headers=headers, trust_env=False) as desk:
        print(give_verdicts(desk), "verdicts")
    command = ["recalibrate", "--from-store", "--signals"]
    print(f"\n$ pinocchio {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "pinocchio", *command, "--config", CONFIG], check=True)
    print()
    time.sleep(2)  # a running proxy loads the result within a second
    for question in questions[:2]:
        show(question, ask(question, "zoe"))
