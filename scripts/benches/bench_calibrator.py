"""The CPU cost of the embedded calibrator.

The figures are: one score at three lengths, of a call after a long conversation, and of a short
factual reply, which a small encoder reads too, alone and in a batch; scores a second of replies as
long as those of benchmarks; seconds from the import to the first score; memory of a whole proxy
after its first score. Times are medians, on texts of random words.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
from bench_http import QUESTION
from bench_process import memory_mb
from bench_servers import SERVERS, start, start_proxy
from bench_table import number_text, say, table

from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.scorer import Item, ToolUse

FOLDER: Final = CHECKPOINTS / EMBEDDED
GOALS_MS: Final = {128: 2.0, 256: 2.5, 512: 4.0}  # word pieces -> ms of one score on one core
CALL_CHARACTERS: Final = 9_000  # characters before a call
CALL: Final = "a call after 9,000 characters, ms"
SHORT: Final = "a short factual reply, ms"
SHORT_OF_MANY: Final = "the same, of eight together, ms"
GOALS: Final = {
    CALL: 25.0,
    SHORT: GOALS_MS[256],
    SHORT_OF_MANY: GOALS_MS[256],
    "scores a second": 600.0,
    "load and warm-up, s": 3.0,
    "memory of the proxy, MB": 450,
}
# The median word pieces of question and answer in each tenth of the test rows.
TENTHS: Final = (18, 36, 71, 122, 166, 216, 267, 329, 430, 633)
WARM_UP: Final = 2
FIRST_SCORE: Final = """\
import time
started = time.perf_counter()
from calibrator import Item, load_scorer
load_scorer("embedded", "cpu").score_batch([Item("warm-up", "warm-up")])
print(time.perf_counter() - started)
"""


class Texts:
    """Random texts of words with one word piece each, always the same ones."""

    def __init__(self, scorer: EmbeddedCalibrator) -> None:
        vocabulary = scorer.tokenizer.get_vocab()
        self._words = sorted(word for word in vocabulary if word.isascii() and word.isalpha())
        self._rng = random.Random(0)

    def item(self, pieces: int) -> Item:
        """Return a question of a quarter of the word pieces, with a reply of the others."""
        chosen = self._rng.choices(self._words, k=pieces)
        return Item(" ".join(chosen[: pieces // 4]), " ".join(chosen[pieces // 4 :]))

    def short(self) -> Item:
        """Return a question for a fact and its reply, of about a dozen word pieces each."""
        chosen = self._rng.choices(self._words, k=20)
        return Item(f"Which {' '.join(chosen[:10])}?", " ".join(chosen[10:]) + ".")

    def call(self, characters: int) -> Item:
        """Return a tool call after at least `characters` of look-ups.

        One of these has the call's arguments.
        """
        records = []
        while sum(map(len, records)) < characters:
            words = self._rng.choices(self._words, k=12)
            records.append(f"id {self._rng.randrange(10_000)}: {' '.join(words)}")
        order, _, words = records[len(records) // 2].partition(": ")
        arguments = json.dumps({"order": order.removeprefix("id "), "reason": words[:40]})
        function = {"name": "cancel_order", "arguments": arguments}
        schema = {"type": "object", "properties": {"order": {"type": "string"}}}
        turns = [
            {"role": "system", "content": "Cancel orders that have not been sent, no others."},
            {"role": "user", "content": f"Cancel the order with {words[:60]}, please."},
            *({"role": "tool", "content": record} for record in records),
        ]
        message = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}
        tools = [{"type": "function", "function": {"name": "cancel_order", "parameters": schema}}]
        return Item("\n".join(records), arguments, tool_use=ToolUse(turns, tools, message))


def median_ms(act: Callable[[], object], repeats: int, at_most_s: float) -> float:
    """Return the median milliseconds of `repeats` calls of `act`, after two to warm up.

    It stops early after `at_most_s` seconds.
    """
    times: list[float] = []
    deadline = time.perf_counter() + at_most_s
    for number in range(WARM_UP + repeats):
        if number > WARM_UP and time.perf_counter() > deadline:
            break
        started = time.perf_counter()
        act()
        times.append((time.perf_counter() - started) * 1_000)
    return statistics.median(times[WARM_UP:])


def score_ms(repeats: int, at_most_s: float) -> dict[str, float]:
    """Return the median milliseconds of one score, keyed by its word pieces as text, like `"128"`.

    Each is of `repeats` new texts, or of as many as fit into `at_most_s` seconds.
    """
    scorer = load_embedded(FOLDER)
    texts = Texts(scorer)

    def ms(pieces: int) -> float:
        """Return the median milliseconds of one score of texts of this many pieces."""
        items = iter([texts.item(pieces) for _ in range(WARM_UP + repeats)])
        return median_ms(lambda: scorer.score_batch([next(items)]), repeats, at_most_s)

    return {str(pieces): ms(pieces) for pieces in GOALS_MS}


def call_ms(repeats: int, at_most_s: float) -> float:
    """Return the median milliseconds of one call's score, each after a new long conversation."""
    scorer = load_embedded(FOLDER)
    texts = Texts(scorer)
    items = iter([texts.call(CALL_CHARACTERS) for _ in range(WARM_UP + repeats)])
    return median_ms(lambda: scorer.score_batch([next(items)]), repeats, at_most_s)


def short_ms(repeats: int, at_most_s: float, together: int) -> float:
    """Return the median milliseconds of each short factual reply, `together` in a batch."""
    scorer = load_embedded(FOLDER)
    texts = Texts(scorer)
    batches = iter([[texts.short() for _ in range(together)] for _ in range(WARM_UP + repeats)])
    return median_ms(lambda: scorer.score_batch(next(batches)), repeats, at_most_s) / together


def scores_per_s(at_least_s: float) -> float:
    """Return the scores a second, in batches of ten rows, one of each tenth of usual lengths.

    It measures for `at_least_s` seconds; making the texts does not count.
    """
    scorer = load_embedded(FOLDER)
    texts = Texts(scorer)
    scorer.score_batch([texts.item(pieces) for pieces in TENTHS])
    count, took = 0, 0.0
    while took < at_least_s:
        batch = [texts.item(pieces) for pieces in TENTHS]  # new ones, as questions are cached
        started = time.perf_counter()
        count += len(scorer.score_batch(batch))
        took += time.perf_counter() - started
    return count / took


def first_score_s(times: int) -> float:
    """Return the median seconds from the import to the first score, in `times` new interpreters."""
    command = [sys.executable, "-c", FIRST_SCORE]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(times))


def proxy_mb() -> float:
    """Return the memory in MB of `pinocchio serve` with one worker that has scored a reply.

    Raises RuntimeError if the reply has no score.
    """
    body = {"model": "bench", "messages": [{"role": "user", "content": QUESTION}]}
    with (
        tempfile.TemporaryDirectory() as scratch,
        start([str(SERVERS), "upstream"]) as upstream,
        start_proxy(upstream.url, EMBEDDED, Path(scratch)) as proxy,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        reply = client.post(f"{proxy.url}/chat/completions", json=body)
        if "x-pinocchio-confidence" not in reply.headers:
            raise RuntimeError(f"it was not scored: {reply.status_code} {dict(reply.headers)}")
        return memory_mb(proxy.pid)


def score_table(ours: dict[str, float]) -> str:
    """Return a table, as text, of the results of `score_ms` beside the goals."""
    rows = [
        ["one score, ms", *(f"{pieces} pieces" for pieces in ours)],
        ["as it serves", *map(number_text, ours.values())],
        ["goal on one core", *map(number_text, GOALS_MS.values())],
    ]
    return table(rows)


def main() -> None:
    """Measure and print all figures beside their goals, as tables or as JSON."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench calibrator", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    options = parser.parse_args()
    repeats, at_most_s = (15, 2.0) if options.quick else (40, 10.0)
    say("one score ...")
    ours = score_ms(repeats, at_most_s)
    say("batches, start and memory ...")
    others = {
        CALL: call_ms(repeats, at_most_s),
        SHORT: short_ms(repeats, at_most_s, 1),
        SHORT_OF_MANY: short_ms(repeats, at_most_s, 8),
        "scores a second": scores_per_s(at_most_s),
        "load and warm-up, s": first_score_s(3),
        "memory of the proxy, MB": proxy_mb(),
    }
    if options.json:
        facts = {"cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
        print(json.dumps({**facts, "score_ms": ours, **others}, indent=1))
        return
    print(score_table(ours), end="\n\n")
    print(
        table(
            [
                ["", "", "goal"],
                *([k, number_text(v), number_text(GOALS[k])] for k, v in others.items()),
            ]
        )
    )


if __name__ == "__main__":
    main()
