"""Audit replies and let the verdicts recalibrate the confidence.

    PINOCCHIO_ADMIN_TOKEN=a-long-secret scripts/serve --config examples/learning/proxy.yaml
    PINOCCHIO_ADMIN_TOKEN=a-long-secret .venv/bin/python examples/learning/learn.py

Here the verdicts come from the demo's answer key; your reviewers give them in the console, or a
program looks the answer up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from openai import OpenAI

from proxy.upstreams.demo.demo import rows

CONFIG = os.environ.get("PINOCCHIO_CONFIG", str(Path(__file__).with_name("proxy.yaml")))
URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
DESK = os.environ.get("PINOCCHIO_DESK_URL", "http://127.0.0.1:8001")
TOKEN = os.environ["PINOCCHIO_ADMIN_TOKEN"]
PEOPLE = ("ann", "bob")  # for one person, the same question counts once


def ask() -> None:
    client = OpenAI(base_url=URL, api_key="none-needed", max_retries=0)
    for question in dict.fromkeys(row.question for row in rows() if row.content):
        for person in PEOPLE:
            client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": question}], user=person
            )


def audited(desk: httpx.Client) -> Iterator[dict[str, str]]:
    """Yield the audited replies that wait for a verdict."""
    while items := desk.get("/reviews", params={"queue": "audit"}).json()["items"]:
        yield from items


def judge(desk: httpx.Client) -> int:
    """Give every audited reply its verdict; return how many were right."""
    right = {row.content for row in rows() if row.correct}
    count = 0
    for item in audited(desk):
        review = desk.get(f"/reviews/{item['id']}").json()
        is_right = review["reply"]["choices"][0]["message"]["content"] in right
        verdict = {"verdict": "approve" if is_right else "reject", "correct": is_right}
        desk.post(f"/reviews/{item['id']}/verdict", json=verdict).raise_for_status()
        count += is_right
    return count


def pinocchio(*command: str) -> None:
    print(f"\n$ pinocchio {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "pinocchio", *command, "--config", CONFIG], check=False)


if __name__ == "__main__":
    ask()
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"{DESK}/pinocchio/v1", headers=headers, trust_env=False) as at_desk:
        print(judge(at_desk), "of the delivered replies were right")
    pinocchio("report", "estimate")
    pinocchio("recalibrate", "--from-store")
    pinocchio("report", "drift")
