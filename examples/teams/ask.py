"""One proxy, two teams: the same answer is held for one of them and delivered to the other.

.venv/bin/pinocchio serve --config examples/teams/proxy.yaml
.venv/bin/python examples/teams/ask.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from openai import AuthenticationError, OpenAI

CONFIG = os.environ.get("PINOCCHIO_CONFIG", str(Path(__file__).with_name("proxy.yaml")))
URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
MESSAGES = [{"role": "user", "content": "Is 91 a prime number?"}]


def new_client(team: str) -> OpenAI:
    """Return a client with its own key, once the running proxy accepts it."""
    command = [sys.executable, "-m", "pinocchio", "keys", "create", "--config", CONFIG]
    options = ["--team", team, "--name", "example", "--expires", "30m"]
    made = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True)
    client = OpenAI(base_url=URL, api_key=made.stdout.strip(), max_retries=0)
    for _ in range(50):
        try:
            client.models.list()
            break
        except AuthenticationError:
            time.sleep(0.1)
    return client


def action(client: OpenAI, policy: str | None = None) -> str:
    """Return the action on the answer and the policy behind it; `policy` selects a stricter one."""
    headers = {"x-pinocchio-policy": policy} if policy else {}
    reply = client.chat.completions.with_raw_response.create(
        model="demo", messages=MESSAGES, extra_headers=headers
    )
    return f"{reply.headers['x-pinocchio-action']} by {reply.headers['x-pinocchio-policy']}"


support, research = new_client("support"), new_client("research")
print("support:           ", action(support))
print("research:          ", action(research))
print("research, stricter:", action(research, "support"))
try:
    action(OpenAI(base_url=URL, api_key="sk-somebody", max_retries=0))
except AuthenticationError as error:
    print("somebody else:     ", error.status_code, error.code)
