"""One model answers, another judges the answer, and the confidence changes.

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
    member = completion.model_extra["pinocchio"]
    print(question)
    print("  answer:    ", completion.choices[0].message.content)  # always from `demo`
    print("  confidence:", member["confidence"], member["action"], member.get("label", ""))

    # `evidence` exists if other models were asked: the confidence before, and their opinions.
    for evidence in member.get("evidence", []):
        print("  before:    ", evidence["before"])
        for opinion in evidence["opinions"]:
            print("  opinion:   ", opinion["model"], opinion["agreement"], opinion.get("usage", {}))
