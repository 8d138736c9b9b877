"""One question through the proxy; only `base_url` differs from plain OpenAI code.

scripts/serve                              # in another terminal
.venv/bin/python examples/quickstart.py
"""

import os

from openai import OpenAI

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
QUESTION = "Is 91 a prime number?"

client = OpenAI(base_url=URL, api_key="none needed for the demo")

# The answer, with the probability that it is correct: in a header ...
reply = client.chat.completions.with_raw_response.create(
    model="demo", messages=[{"role": "user", "content": QUESTION}]
)
completion = reply.parse()
print("answer: ", completion.choices[0].message.content)
print("header: ", reply.headers.get("x-pinocchio-confidence"))

# ... and in the body. If there is no number, the status says why (`loading`, `timeout`, ..).
member = completion.model_extra["pinocchio"]
print("body:   ", member["confidence"], member["status"])

# A stream is not delayed; the chunk with the finish_reason carries the confidence.
print("stream:  ", end="")
for chunk in client.chat.completions.create(
    model="demo", messages=[{"role": "user", "content": QUESTION}], stream=True
):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if member := chunk.model_extra.get("pinocchio"):
        print("\nfinish: ", member["confidence"], member["status"])
