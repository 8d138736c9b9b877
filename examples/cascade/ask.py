"""A cheap model first, a stronger one where the proxy is unsure; what that cost, call by call.

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
    judged = completion.model_extra["pinocchio"]
    print(question)
    print("  answer: ", completion.choices[0].message.content)
    print("  action: ", judged["action"], judged["confidence"])

    # `calls` is there where more than one model was asked; `usage` in the completion is that of
    # the delivered reply alone.
    for call in judged.get("calls", []):
        usage = call.get("usage", {})
        tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        kept = "kept" if call.get("kept") else ""
        print("  call:   ", call["model"], call.get("confidence"), f"{tokens} tokens", kept)
