"""One model answers, another is asked about its answer; what that did to the number.

.venv/bin/pinocchio serve --config examples/second_opinion/proxy.yaml     # in another terminal
.venv/bin/python examples/second_opinion/ask.py
"""

import os

from openai import OpenAI

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
QUESTIONS = [
    "How many minutes does February 2028 have?",
    "How many bones does a great white shark have in its body?",
]

client = OpenAI(base_url=URL, api_key="none needed for the demo")

for question in QUESTIONS:
    completion = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": question}]
    )
    judged = completion.model_extra["pinocchio"]
    print(question)
    print("  answer:    ", completion.choices[0].message.content)  # always that of `demo`
    print("  confidence:", judged["confidence"], judged["action"], judged.get("label", ""))

    # `evidence` is there where somebody else was asked: the number before and after, and what each
    # of them said about it.
    for evidence in judged.get("evidence", []):
        print("  before:    ", evidence["before"])
        for opinion in evidence["opinions"]:
            print("  opinion:   ", opinion["model"], opinion["agreement"], opinion.get("usage", {}))
