"""Write simulated labelled replies, like those of a deployment, with overconfident scores.

Each line is a scored reply with a person's label. Yours come from `pinocchio score` and reviewers.
"""

import json
import math
import random

rng = random.Random(7)
for number in range(2_000):
    confidence = rng.betavariate(2, 1)
    logit = math.log(confidence / (1 - confidence))
    is_correct = rng.random() < 1 / (1 + math.exp(0.7 - logit))
    row = {
        "id": f"reply-{number}",
        "question_id": f"question-{number}",
        "question": f"What is fact {number}?",
        "response": f"Fact {number} is this. " * rng.randint(1, 9),
        "model": "demo",
        "confidence": round(confidence, 4),
        "calibrator": "example@1",
        "correct": int(is_correct),
    }
    print(json.dumps(row))
