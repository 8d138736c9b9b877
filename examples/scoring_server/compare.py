"""One calibrator in its own process, used by a proxy and directly by a program.

.venv/bin/pinocchio serve --scorer-only --port 9000
.venv/bin/pinocchio serve --config examples/scoring_server/proxy.yaml     # or several proxies
.venv/bin/python examples/scoring_server/compare.py
"""

import os

import httpx
from openai import OpenAI

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
SCORER_URL = os.environ.get("PINOCCHIO_SCORER_URL", "http://127.0.0.1:9000")
QUESTION = "Is 91 a prime number?"

reply = OpenAI(base_url=URL, api_key="none needed for the demo").chat.completions.create(
    model="demo", messages=[{"role": "user", "content": QUESTION}]
)
answer = reply.choices[0].message.content

token = os.environ.get("PINOCCHIO_SCORER_TOKEN", "")
scored = httpx.post(
    f"{SCORER_URL}/pinocchio/v1/score",
    json={"items": [{"question": QUESTION, "answer": answer, "source_model": reply.model}]},
    headers={"authorization": f"Bearer {token}"} if token else {},
    timeout=10,
)
scored.raise_for_status()

print("through the proxy:", reply.model_extra["pinocchio"]["confidence"])
print("from the server:  ", round(scored.json()["scores"][0]["confidence"], 4))
print("calibrator:       ", scored.json()["calibrator"])
