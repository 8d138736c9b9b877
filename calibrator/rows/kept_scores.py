"""A cache of scores and fits on disk, so that nothing is computed twice.

An evaluation of the same rows, after an interruption or for another report, computes only new rows.
The cache holds no text: a row is a SHA-256 of everything that the calibrator sees of it, and its
numbers. Entries are valid for one version of the calibrator, its device and this very code, and are
removed a month after their last use.

    ~/.cache/pinocchio/scores/NAME-DIGEST.jsonl    a line for each score
    ~/.cache/pinocchio/fits/DIGEST.npy             one baseline's confidences for some rows

`PINOCCHIO_CACHE` names another folder. Where it cannot be written, nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.metrics.metrics import Floats, Ints
from calibrator.rows.rows import Row
from calibrator.scorer import (
    FakeScorer,
    FieldDoubt,
    Item,
    Score,
    Scorer,
    ToolUse,
    UnsupportedSentence,
    batch_characters_of,
    opinion_of,
    read_notes,
    reads_images,
    reads_tool_use,
    signals_of,
    with_answer_characters,
)

FOLDER_VARIABLE = "PINOCCHIO_CACHE"
UNUSED_DAYS = 30
JUDGING_ROOMS = (
    "calibrator/commands/",
    "calibrator/lab/judging/evaluation/",
    "calibrator/lab/paper/",
    "calibrator/lab/reporting/",
    "calibrator/lab/data/selecting.py",
    "calibrator/lab/judging/sensitivity/",
)
DIGEST_LETTERS = 32  # 128 bits, so no two rows of a file share a digest


class KeptScores:
    """A Scorer that passes on only new items to another and caches its scores.

    With `is_renewed` it starts with an empty cache, so all scores are computed and kept again.
    """

    def __init__(self, scorer: Scorer, device: str, *, is_renewed: bool = False) -> None:
        """Read the cached scores of this scorer and device, unless `is_renewed`."""
        self._scorer, self._device, self._is_renewed = scorer, device, is_renewed
        deciding = [scorer.name, opinion_of(scorer), signals_of(scorer)]
        self._path = _score_file(scorer.name, [*deciding, device])
        self._scores = {} if is_renewed else dict(_read(self._path))
        self.reused = 0  # number of items found in the cache

    @property
    def name(self) -> str:
        return self._scorer.name

    @property
    def reads_images(self) -> bool:
        return reads_images(self._scorer)

    @property
    def reads_tool_use(self) -> bool:
        return reads_tool_use(self._scorer)

    @property
    def opinion(self) -> str:
        return opinion_of(self._scorer)

    @property
    def batch_characters(self) -> int:
        return batch_characters_of(self._scorer)

    def with_answer_characters(self, characters: int) -> Scorer:
        """Return it with another limit on the characters of an answer that the scorer reads.

        It returns itself where the scorer has no such limit.
        """
        raised = with_answer_characters(self._scorer, characters)
        if raised is self._scorer:
            return self
        return KeptScores(raised, self._device, is_renewed=self._is_renewed)

    def known_scores(self, items: Sequence[Item]) -> dict[int, Score]:
        """Return the cached scores by the item's position, and add their number to `reused`."""
        found = {
            at: score
            for at, item in enumerate(items)
            if (score := self._scores.get(_digest_of_item(item))) is not None
        }
        self.reused += len(found)
        return found

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Score all items with the wrapped scorer, cache the scores on disk and return them."""
        scores = self._scorer.score_batch(items)
        digests = [_digest_of_item(item) for item in items]
        self._scores |= zip(digests, scores, strict=True)
        _append(self._path, zip(digests, scores, strict=True))
        return scores


def cache_scores(scorer: Scorer, device: str, *, is_renewed: bool = False) -> Scorer:
    """Return the scorer with a cache on disk; a fake one, which computes nothing, unchanged.

    `device` is part of the cache's key. With `is_renewed` the cache starts empty.
    """
    if isinstance(scorer, FakeScorer):
        return scorer
    return KeptScores(scorer, device, is_renewed=is_renewed)


def reused_sentence(scorer: Scorer) -> str:
    """Return a sentence such as `12 scores were kept from an earlier run; ..`; "" for none."""
    count = getattr(scorer, "reused", 0)
    verb, again = ("score was", "it") if count == 1 else ("scores were", "them")
    return (
        f"{count:,} {verb} kept from an earlier run; --rescore makes {again} again" if count else ""
    )


def kept_fit(
    parts: Sequence[str], fit: Callable[[], Floats], *, is_renewed: bool = False
) -> Floats:
    """Return the result of `fit`, an array that is cached on disk under `parts`.

    `parts` must name all that determines it. `is_renewed` computes it again. Errors of the disk are
    ignored.
    """
    digest = hashlib.sha256("\n".join([code_digest(), *parts]).encode()).hexdigest()[
        :DIGEST_LETTERS
    ]
    path = cache_folder() / "fits" / f"{digest}.npy"
    with suppress(OSError, ValueError):
        if is_renewed:
            path.unlink(missing_ok=True)
        found = np.load(path, allow_pickle=False)
        os.utime(path)
        return np.asarray(found, dtype=np.float64)
    fitted = fit()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_unused(path.parent)
        partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
        np.save(partial, fitted, allow_pickle=False)
        partial.replace(path)
    return fitted


def kept_folds(
    fit: Callable[[Ints, Ints], Floats],
    rows: Sequence[Row],
    *parts: str,
    is_renewed: bool = False,
) -> Callable[[Ints, Ints], Floats]:
    """Return `fit` with its results cached on disk by `kept_fit`.

    `fit` takes the positions among `rows` of the training and the judged rows of a fold. `parts`
    name all else that determines its results.
    """
    whole = digest_of_rows(rows)

    def fit_or_load(train: Ints, judged: Ints) -> Floats:
        """Return the fold's result from the cache, or compute and keep it."""
        chosen = [hashlib.sha256(at.tobytes()).hexdigest() for at in (train, judged)]
        every = ["fold", *parts, whole, *chosen]
        return kept_fit(every, lambda: fit(train, judged), is_renewed=is_renewed)

    return fit_or_load


def digest_of_rows(rows: Sequence[Row]) -> str:
    """Return one SHA-256 of all that a fit can see of some rows, in their order."""
    found = hashlib.sha256()
    for row in rows:
        found.update(_digest_of_item(row.item("all")).encode())
        found.update(json.dumps([row.correct, row.question_id]).encode())
    return found.hexdigest()


def cache_folder() -> Path:
    """Return the folder of the cache: `$PINOCCHIO_CACHE`, or `pinocchio` in the user's cache.

    It need not exist.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()) / "pinocchio"


def _score_file(name: str, decided_by: Sequence[str]) -> Path:
    """Return the cache's file for a scorer `name`, by all the texts that decide its scores."""
    digest = hashlib.sha256("\n".join([*decided_by, code_digest()]).encode()).hexdigest()[:12]
    stem = re.sub(r"[^\w.@+-]+", "_", name)[:80].strip("._") or "scores"
    return cache_folder() / "scores" / f"{stem}-{digest}.jsonl"


@cache
def code_digest(*, is_whole: bool = False) -> str:
    """Return a SHA-256 of the source that scores and fits, or of all source with `is_whole`.

    Other code may give other numbers. Code that only judges or shows numbers is left out.
    """
    root = Path(__file__).parent.parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root.parent).as_posix()
        if is_whole or not place.startswith(JUDGING_ROOMS):
            found.update(place.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _digest_of_item(item: Item) -> str:
    """Return a SHA-256, cut to 32 digits, of everything in an item that its score depends on."""
    seen = [
        *(item.question, item.answer, item.source_model, item.benchmark, item.domain),
        [hashlib.sha256(image).hexdigest() for image in item.images],
        _tool_use_key(item.tool_use),
        *(
            [other.answer, other.source_model, _tool_use_key(other.tool_use)]
            for other in item.others
        ),
        *(() if item.alone is None else [item.alone]),
        *([list(astuple(item.signals))] if item.signals.kinds else []),
        *([list(item.messages)] if item.messages and item.tool_use is None else []),
        *([{"facts": item.facts}] if item.facts else []),
    ]
    text = json.dumps(seen, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def _tool_use_key(use: ToolUse | None) -> list[Any] | None:
    """Return the parts of a tool use as lists for a digest; None for none."""
    return None if use is None else [list(use.messages), list(use.tools), use.message]


def _read(path: Path) -> Iterator[tuple[str, Score]]:
    """Yield the digests and scores of a cache file; nothing if it cannot be read.

    Its time is set to now, as used. Lines that an interruption cut short are skipped.
    """
    try:
        os.utime(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        try:
            digest, values = json.loads(line)
            yield digest, _score_from_values(values)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _score_from_values(values: dict[str, Any]) -> Score:
    """Return the score of which `_score_values` made these values.

    Raises KeyError, TypeError and the like for other values.
    """
    values = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
    doubts = tuple(FieldDoubt(**one) for one in values.pop("fields", ()))
    unsupported = tuple(
        UnsupportedSentence(one["sentence"], tuple(one["words"]), one["kind"])
        for one in values.pop("unsupported", ())
    )
    notes = values.pop("notes", None)
    return Score(
        **values,
        fields=doubts,
        unsupported=unsupported,
        notes=None if notes is None else read_notes(notes),
    )


def _score_values(one: Score) -> dict[str, Any]:
    """Return the fields of a score, by name, that differ from their defaults, as plain values."""
    unset = Score(math.nan, math.nan)
    names = [field.name for field in fields(one)]
    found = {
        name: getattr(one, name) for name in names if getattr(one, name) != getattr(unset, name)
    }
    for name in {"fields", "notes", "unsupported"} & found.keys():
        found[name] = [asdict(each) for each in found[name]]
    return found


def _append(path: Path, scores: Any) -> None:
    """Append pairs of digest and score to a cache file, which is made if it is missing.

    An error of the disk is ignored. Files unused for a month are removed when one is made.
    """
    lines = [json.dumps([digest, _score_values(one)]) for digest, one in scores]
    with suppress(OSError):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_unused(path.parent)
        with path.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"\n{line}" for line in lines))  # ends a line cut short earlier


def _remove_unused(folder: Path) -> None:
    """Delete the files of a folder that were not used for `UNUSED_DAYS`; errors are ignored."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in folder.iterdir():
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()
