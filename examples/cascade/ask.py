"""A cheap model answers first, a stronger one if the confidence is low; the cost of each call.

.venv/bin/pinocchio serve --config examples/cascade/proxy.yaml     # in another terminal
.venv/bin/python examples/cascade/ask.py
"""

import os

from openai import OpenAI

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
QUESTIONS = ["How many minutes does February 2028 have?", "Is 91 a prime number?"]

client = OpenAI(base_url=URL, api_key="none needed for the demo")

for question in QUESTIONS:
    completion = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": question}]
    )
    member = completion.model_extra["pinocchio"]
    print(question)
    print("  answer: ", completion.choices[0].message.content)
    print("  action: ", member["action"], member["confidence"])

    # `calls` exists if more than one model was asked; `usage` of the completion counts only the
    # delivered reply.
    for call in member.get("calls", []):
        usage = call.get("usage", {})
        tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        kept = "kept" if call.get("kept") else ""
        print("  call:   ", call["model"], call.get("confidence"), f"{tokens} tokens", kept)
