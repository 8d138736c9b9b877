"""A fuzzer of checkpoint folders, which are loaded or refused with an error message.

A finding is any exception but CheckpointError, a score that is no probability, or a minute of work.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from calibrator import CheckpointError, Item, Scorer, load_scorer
from calibrator.checkpoints.checkpoint import EMBEDDED, resolve_checkpoint
from tests.fuzz.fuzzing import Case
from tests.fuzz.mutations import changed, dumped, spoilt

MOST_S = 60.0
ITEM = Item("What is 2 + 2?", "4")


@contextmanager
def cases() -> Iterator[Case]:
    source = resolve_checkpoint(EMBEDDED)
    with TemporaryDirectory() as folder:
        yield lambda chance: _case(chance, source, Path(folder))


def _case(chance: random.Random, source: Path, folder: Path) -> str:
    files = sorted(path for path in source.iterdir() if path.is_file())
    target = chance.choice([path for path in files if path.name != "README.md"])
    for path in files:
        place = folder / path.name
        place.unlink(missing_ok=True)
        if path == target:
            place.write_bytes(_changed(chance, path))
        else:
            os.symlink(path, place)
    if chance.random() < 0.05:
        (folder / target.name).unlink()
    began = time.process_time()
    try:
        outcome = _used(load_scorer(str(folder), "cpu", threads=1))
    except CheckpointError as error:
        outcome = "refused" if str(error) else "refused without a word"
    except Exception as error:
        raise AssertionError(f"{target.name}: {type(error).__name__}: {error}") from error
    assert time.process_time() - began < MOST_S, f"{target.name}: took too long"
    return f"{target.name} {outcome}"


def _used(scorer: Scorer) -> str:
    [score] = scorer.score_batch([ITEM])
    assert 0.0 <= score.confidence <= 1.0, f"a confidence of {score.confidence}"
    return "loaded"


def _changed(chance: random.Random, path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".json" and chance.random() < 0.7:
        return dumped(chance, changed(chance, json.loads(data)))
    if path.suffix == ".safetensors":
        return _changed_tensors(chance, data)
    return spoilt(chance, data)


def _changed_tensors(chance: random.Random, data: bytes) -> bytes:
    """Return a file of tensors with a damaged header or damaged numbers."""
    (size,) = struct.unpack("<Q", data[:8])
    header, numbers = data[8 : 8 + size], data[8 + size :]
    match chance.randrange(5):
        case 0:
            header = dumped(chance, changed(chance, json.loads(header)))
        case 1:
            header = spoilt(chance, header)
        case 2:
            return data[: chance.randrange(len(data))]
        case 3:
            return struct.pack("<Q", chance.choice((0, 1, 2**31, 2**63))) + data[8:]
        case _:
            at = 4 * chance.randrange(len(numbers) // 4)
            odd = struct.pack("<f", chance.choice((float("nan"), float("inf"), 1e38, -1e38)))
            numbers = numbers[:at] + odd * 64 + numbers[at + 256 :]
    return struct.pack("<Q", len(header)) + header + numbers
