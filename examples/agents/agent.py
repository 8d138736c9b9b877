"""An agent with gated tools: calls that are likely wrong wait for a person, the others run.

    scripts/serve --config examples/agents/proxy.yaml        # in another terminal
    .venv/bin/python examples/agents/agent.py "On order 48213, please give the customer back just \
the shipping costs of 6.90 euros."
    .venv/bin/pinocchio reviews approve ID --config examples/agents/proxy.yaml

A call that a reviewer rejects is not made: the model learns why, and takes another step. You may
kill the agent at any moment and start it again: it repeats its last request, and the proxy answers
with the decision on the held call, without asking the model a second time.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from openai import OpenAI, UnprocessableEntityError
from tools import TOOLS, perform

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none needed for the demo")
MEMORY = Path(os.environ.get("AGENT_MEMORY", "memory.json"))
ASK_AGAIN_AFTER_S = os.environ.get("AGENT_ASK_AGAIN_AFTER_S")  # by default, what the proxy says

client = OpenAI(base_url=URL, api_key=KEY, max_retries=8)


def main(question: str) -> None:
    messages: list[Any] = [{"role": "user", "content": question}]
    if MEMORY.exists():
        messages = json.loads(MEMORY.read_text())
    while True:
        for call in unanswered_calls(messages):
            function = call["function"]
            result = perform(call["id"], function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            remember(messages)
        if messages[-1]["role"] == "assistant":
            print("answer:", messages[-1]["content"])
            return
        messages.append(ask(messages))
        remember(messages)


def ask(messages: list[Any]) -> Any:
    """Return the model's next message; wait while a reviewer has not decided on it."""
    last_id = None
    while True:
        try:
            reply = client.chat.completions.create(model="demo", messages=messages, tools=TOOLS)
            return reply.choices[0].message.to_dict()
        except UnprocessableEntityError as error:
            facts: Any = error.body
            if error.code == "held_reply_rejected":
                messages.append(rejection(facts))
                remember(messages)
                continue
            if error.code != "held_for_review":
                sys.exit(f"refused: {error.code}")  # by a policy, or nobody decided in time
            id = facts["review_id"]
            if id != last_id:
                print("held:", id, flush=True)
            last_id = id
            time.sleep(float(ASK_AGAIN_AFTER_S or facts["retry_after_s"]))


def rejection(facts: Any) -> Any:
    """Return the message that tells the model why a reviewer rejected its call."""
    why = facts.get("note", "no reason was given")
    print("rejected:", why, flush=True)
    text = f"A reviewer rejected your last step: {why}. Take another one."
    return {"role": "user", "content": text}


def unanswered_calls(messages: list[Any]) -> list[Any]:
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    answered = {message.get("tool_call_id") for message in messages}
    return [call for call in calls if call["id"] not in answered]


def remember(messages: list[Any]) -> None:
    """Write the messages to `MEMORY`, at once or not at all."""
    new = MEMORY.with_suffix(".new")
    new.write_text(json.dumps(messages))
    new.replace(MEMORY)


if __name__ == "__main__":
    main(sys.argv[1])
