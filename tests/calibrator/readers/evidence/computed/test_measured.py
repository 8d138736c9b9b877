"""Precision of the verdicts on graded replies: a slow measurement that needs the data.

    DATA=folder pytest -n 0 -s -m slow tests/calibrator/readers/evidence/computed/test_measured.py

The folder holds `grounding/train` and `train`, with files of JSON lines. With PART=test their other
halves are read.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrator.readers.evidence.computed import verify
from calibrator.readers.evidence.conversation import read_conversation

DATA = os.environ.get("DATA")
PART = os.environ.get("PART", "train")  # or test
ROWS = 2000  # of each file, drawn at random
# The least precision of a "no" in each file. A reply that the label calls right can break the form
# that was asked for, and labels have mistakes of their own.
LEAST = {
    "ifeval_multi": 0.85,
    "sgd_state": 0.9,
    "snips_slots": 0.98,
    "receipts__no_licence": 0.9,
    "sql_spider": 0.98,
    "mt_quality": 0.6,
    "star_flow": 0.98,
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="DATA names no folder of graded replies"),
]


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield at most ROWS rows of a file, drawn at random."""
    path = Path(DATA or "") / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    yield from random.Random(0).sample(rows, min(ROWS, len(rows)))


def counts_of(name: str) -> Counter[tuple[str, bool, bool]]:
    """Count the verdicts on a file by task, by verdict and by label, and print them."""
    counts: Counter[tuple[str, bool, bool]] = Counter()
    labels: Counter[bool] = Counter()
    begin = time.process_time()
    for row in rows_of(name):
        if not isinstance(row["response"], str):
            continue
        conversation = read_conversation(row.get("messages", ()), row.get("question", ""))
        verdict = verify(conversation, row["response"])
        labels[bool(row["correct"])] += 1
        if verdict is not None:
            counts[verdict.task, verdict.is_right, bool(row["correct"])] += 1
    each = 1000 * (time.process_time() - begin) / max(1, sum(labels.values()))
    print(f"\n{name}: {labels[True]} right, {labels[False]} wrong, {each:.2f} ms")
    for task in sorted({task for task, _, _ in counts}):
        verdicts = {
            key: counts[task, key[0], key[1]]
            for key in ((a, b) for a in (False, True) for b in (False, True))
        }
        print(
            f"  {task:12} no: {verdicts[False, False]} wrong, {verdicts[False, True]} right;"
            f" yes: {verdicts[True, True]} right, {verdicts[True, False]} wrong"
        )
    return counts


def share_of_no(counts: Counter[tuple[str, bool, bool]]) -> float:
    """Return the share of wrong replies among those that are called wrong."""
    wrong = sum(
        count for (_, is_right, label), count in counts.items() if not is_right and not label
    )
    right = sum(count for (_, is_right, label), count in counts.items() if not is_right and label)
    return wrong / max(1, wrong + right)


@pytest.mark.parametrize("name", sorted(LEAST))
def test_most_replies_that_are_called_wrong_are_wrong(name: str) -> None:
    """Replies that are called wrong have the precision of the table."""
    assert share_of_no(counts_of(f"grounding/{PART}/{name}")) >= LEAST[name]


def test_general_requests_raise_at_most_one_false_alarm_in_a_thousand() -> None:
    """At most one right reply in a thousand to general requests is called wrong."""
    counts = counts_of(f"grounding/{PART}/halueval_general")
    alarms = sum(count for (_, is_right, label), count in counts.items() if not is_right and label)
    assert alarms <= 1


def test_benchmarks_raise_few_false_alarms() -> None:
    """At most two right replies in a thousand to benchmarks are called wrong."""
    alarms = total = 0
    for path in sorted((Path(DATA or "") / PART).glob("*.jsonl.gz")):
        name = f"{PART}/{path.name.removesuffix('.jsonl.gz')}"
        counts = counts_of(name)
        total += sum(bool(row["correct"]) for row in rows_of(name))
        alarms += sum(n for (_, is_right, label), n in counts.items() if not is_right and label)
    print(f"\nbenchmarks: {alarms} false alarms of {total} right replies")
    assert alarms <= total * 0.002
