"""What the embedded calibrator costs on the CPU, beside the same encoder in plain torch.

One score at three lengths, tokenizer, side tower and familiarity included; scores a second of
replies as long as those of benchmarks are; seconds from the import to the first score; memory of a
whole proxy after its first score. Median times in a process of their own. The checkpoint reads at
most its own number of tokens, which is measured too: longer rows show what a longer one would cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
from bench_http import QUESTION
from bench_process import memory_mb
from bench_servers import SERVERS, start, start_proxy
from bench_table import say, shown, table

from calibrator.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.cross_encoder import Checkpoint, CrossEncoder, Encoder, read_checkpoint
from calibrator.onnx_encoder import OnnxEncoder
from calibrator.scorer import Item

FOLDER: Final = CHECKPOINTS / EMBEDDED
GOALS_MS: Final = {128: 12.0, 256: 20.0, 512: 45.0}  # tokens -> of one score on two cores
GOALS: Final = {"scores a second": 40.0, "load and warm-up, s": 3.0, "memory of the proxy, MB": 450}
# tokens of 3,000 test rows as served, those in the middle of each tenth of them
TENTHS: Final = (34, 59, 97, 141, 188, 192, 192, 192, 192, 192)
WARM_UP: Final = 2
FIRST_SCORE: Final = """\
import time
started = time.perf_counter()
from calibrator import Item, load_scorer
load_scorer("embedded", "cpu").score_batch([Item("warm-up", "warm-up")])
print(time.perf_counter() - started)
"""


def score_ms(repeats: int, at_most_s: float) -> dict[str, dict[str, float]]:
    """Median milliseconds of one score: threads -> tokens -> ms.

    A length is measured `repeats` times, or for `at_most_s`.
    """
    found = read_checkpoint(FOLDER)
    return {
        str(threads): at_lengths(found, onnx_encoder(found, threads), repeats, at_most_s)
        for threads in sorted({1, cpus()})
    }


def cpus() -> int:
    return os.cpu_count() or 1


def onnx_encoder(found: Checkpoint, threads: int) -> Encoder:
    return OnnxEncoder(found.config.encoder, found.weights, threads)


def at_lengths(
    found: Checkpoint, encoder: Encoder, repeats: int, at_most_s: float
) -> dict[str, float]:
    lengths = sorted({*GOALS_MS, found.config.layout.max_tokens})
    return {
        str(tokens): median_ms(of_length(found, encoder, tokens), tokens, repeats, at_most_s)
        for tokens in lengths
    }


def of_length(found: Checkpoint, encoder: Encoder, tokens: int) -> CrossEncoder:
    """The calibrator as if it had been trained to read so many."""
    config = replace(found.config, layout=replace(found.config.layout, max_tokens=tokens))
    return CrossEncoder(config, encoder, found.tokenizer, found.familiarity, found.tower)


def item_of(tokens: int) -> Item:
    """Cut to a row of so many tokens: one token a word, and too many of them."""
    return Item("why " * (tokens // 4), "so " * tokens)


def median_ms(scorer: CrossEncoder, tokens: int, repeats: int, at_most_s: float) -> float:
    item = item_of(tokens)
    assert len(scorer.token_rows([item])[0].ids) == tokens
    times: list[float] = []
    deadline = time.perf_counter() + at_most_s
    for number in range(WARM_UP + repeats):
        if number > WARM_UP and time.perf_counter() > deadline:
            break
        started = time.perf_counter()
        scorer.score_batch([item])
        times.append((time.perf_counter() - started) * 1_000)
    return statistics.median(times[WARM_UP:])


def scores_per_s(found: Checkpoint, encoder: Encoder, at_least_s: float) -> float:
    """Batches of ten rows, one of each tenth."""
    scorer = of_length(found, encoder, found.config.layout.max_tokens)
    items = [Item("why " * (tokens // 4), "so " * (tokens - tokens // 4 - 4)) for tokens in TENTHS]
    scorer.score_batch(items)
    count, started = 0, time.perf_counter()
    while (took := time.perf_counter() - started) < at_least_s:
        count += len(scorer.score_batch(items))
    return count / took


def first_score_s(times: int) -> float:
    """Median over fresh interpreters."""
    command = [sys.executable, "-c", FIRST_SCORE]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(times))


def proxy_mb() -> float:
    """Memory of `pinocchio serve` with one worker once it has scored a reply."""
    asked = {"model": "bench", "messages": [{"role": "user", "content": QUESTION}]}
    with (
        tempfile.TemporaryDirectory() as scratch,
        start([str(SERVERS), "upstream"]) as upstream,
        start_proxy(upstream.url, EMBEDDED, Path(scratch)) as proxy,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        reply = client.post(f"{proxy.url}/chat/completions", json=asked)
        if "x-pinocchio-confidence" not in reply.headers:
            raise RuntimeError(f"it was not scored: {reply.status_code} {dict(reply.headers)}")
        return memory_mb(proxy.pid)


def in_torch(found: Checkpoint) -> Encoder | None:
    """The same encoder in torch, fp32 and eager; None where torch is not installed."""
    try:
        import torch

        from calibrator.torch_encoder import load_torch_encoder
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(cpus())
    return load_torch_encoder(found.config.encoder, found.weights, "cpu")


def score_table(found: dict[str, dict[str, float]]) -> str:
    """From `score_ms`."""
    lengths = next(iter(found.values()))
    rows = [["one score, ms", *(f"{length} tokens" for length in lengths)]]
    for count, times in found.items():
        rows.append([f"threads: {count}", *map(shown, times.values())])
    return table(rows)


def compared(ours: dict[str, float], theirs: dict[str, float] | None, most: int) -> str:
    """One score beside torch's and the goals."""
    rows: list[Sequence[str]] = [
        [f"one score, ms, {cpus()} threads", *(f"{length} tokens" for length in ours)],
        ["as it serves", *map(shown, ours.values())],
        ["goal on two cores", *(shown(GOALS_MS.get(int(n), float("nan"))) for n in ours)],
    ]
    if theirs:
        rows.append(["torch, fp32, eager", *map(shown, theirs.values())])
        rows.append(["torch / ours", *(shown(theirs[n] / ours[n]) for n in ours)])
    return table([list(row) for row in rows]) + f"\nit reads at most {most} tokens"


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench calibrator", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    options = parser.parse_args()
    repeats, at_most_s = (15, 2.0) if options.quick else (40, 10.0)
    found = read_checkpoint(FOLDER)
    say("one score ...")
    encoder, plain = onnx_encoder(found, cpus()), in_torch(found)
    ours = at_lengths(found, encoder, repeats, at_most_s)
    theirs = at_lengths(found, plain, repeats, at_most_s) if plain else None
    say("batches, start and memory ...")
    others = {
        "scores a second": scores_per_s(found, encoder, at_most_s),
        "load and warm-up, s": first_score_s(3),
        "memory of the proxy, MB": proxy_mb(),
    }
    if options.json:
        facts = {"cpus": cpus(), "load_before": os.getloadavg()[0]}
        print(json.dumps({**facts, "score_ms": ours, "torch_ms": theirs, **others}, indent=1))
        return
    print(compared(ours, theirs, found.config.layout.max_tokens), end="\n\n")
    print(table([["", "", "goal"], *([k, shown(v), shown(GOALS[k])] for k, v in others.items())]))


if __name__ == "__main__":
    main()
