"""The training data of the reader: rows of graded replies, entailment pairs and synthetic pairs."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from calibrator.errors import RowError
from calibrator.lab.data.evidence.corpora import from_passages
from calibrator.lab.data.evidence.mixture import made_rows
from calibrator.readers.evidence.context.passages import Passages
from calibrator.readers.evidence.context.support import (
    CONTEXT_WORDS,
    REQUEST_WEIGHT,
    Cutter,
    assemble,
    documents_of,
    question_beside,
)
from calibrator.readers.evidence.conversation import read_conversation

Row = Mapping[str, Any]
ENTAIL, NEUTRAL, CONTRADICT, NOT_ENTAIL = range(4)  # NOT_ENTAIL: neutral or contradict
LABELS: Final = {
    "entail": ENTAIL,
    "neutral": NEUTRAL,
    "contradict": CONTRADICT,
    "not_entail": NOT_ENTAIL,
}
LONG_PREMISE: Final = 450  # characters; of a longer premise only passages are kept


@dataclass(frozen=True, slots=True)
class ReaderExample:
    """The word pieces of one input of the reader, the start of its second text, and its label."""

    row: list[int]
    second: int
    label: int
    source: str


def sources() -> dict[str, Any]:
    """Return the names of the training files, by kind."""
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "sources.yaml").read_text())
    return found


def read_rows(folder: Path, name: str) -> list[Row]:
    """Read the rows of a file.

    Raises RowError for a line that is no JSON, OSError without a file.
    """
    path = folder / f"{name}.jsonl.gz"
    found: list[Row] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise RowError(str(path), number, f"not JSON: {error}") from error
    return found


def by_question(rows: Iterable[Row], most: int, rng: random.Random) -> list[Row]:
    """Choose whole questions at random until there are at least `most` rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("question_id", row.get("group", row["id"]))), []).append(row)
    names = sorted(groups)
    rng.shuffle(names)
    found: list[Row] = []
    for name in names:
        if len(found) >= most:
            break
        found += groups[name]
    return found


def pair_texts(row: Row) -> tuple[str, str, str, int]:
    """Return the context, the request, the reply and the label of a pair."""
    premise, request, reply = row["premise"], row.get("question", ""), row["hypothesis"]
    if request or len(premise) > LONG_PREMISE:
        premise = chosen_context([premise], request, reply)
    return premise, question_beside(request, reply), reply, LABELS[row["label"]]


def reply_texts(row: Row) -> tuple[str, str, str, int]:
    """Return the context, the request, the reply and the label of a graded reply."""
    conversation = read_conversation(row["messages"])
    reply = row["response"] if isinstance(row["response"], str) else json.dumps(row["response"])
    request = conversation.instruction
    context = chosen_context(documents_of(conversation), request, reply)
    label = ENTAIL if row["correct"] else NOT_ENTAIL
    return context, question_beside(request, reply), reply, label


def chosen_context(documents: Sequence[str], request: str, reply: str) -> str:
    """Return the passages of the documents that the reader sees beside a reply."""
    queries = [(reply, 1.0), (request, REQUEST_WEIGHT)]
    return "\n".join(Passages(documents).closest_units(queries, CONTEXT_WORDS))


def examples(data: Path, cut: Cutter, seed: int) -> Iterator[ReaderExample]:
    """Make all examples of the training half of `data`, file by file."""
    rng = random.Random(seed)
    train, named = data / "train", sources()
    for name, most in named["pairs"].items():
        rows = by_question(read_rows(train, name), most, rng)
        yield from _cut((pair_texts(row) for row in rows), name, cut)
    for name, most in named["replies"].items():
        rows = by_question(read_rows(train, name), most, rng)
        yield from _cut((reply_texts(row) for row in rows), name, cut)
    made = islice(made_rows(seed), named["made"])
    yield from _cut((pair_texts(row) for row in made), "made", cut)
    edited = from_passages(_passages(train, named["passages"], rng), rng)
    yield from _cut((pair_texts(row) for row in edited), "passages", cut)


def _passages(train: Path, files: Mapping[str, int], rng: random.Random) -> list[str]:
    """Return passages of the files, shuffled: premises, or the longest message of each row."""
    found: list[str] = []
    for name, most in files.items():
        texts = sorted({_passage(row) for row in read_rows(train, name)})
        found += rng.sample(texts, min(most, len(texts)))
    rng.shuffle(found)
    return found


def _passage(row: Row) -> str:
    if "premise" in row:
        return str(row["premise"])[:3000]
    return max((str(message.get("content")) for message in row["messages"]), key=len)


def _cut(
    texts: Iterable[tuple[str, str, str, int]], source: str, cut: Cutter
) -> Iterator[ReaderExample]:
    """Cut texts into word pieces, a thousand at a time."""
    waiting = iter(texts)
    while several := list(islice(waiting, 1000)):
        pieces = cut([text for each in several for text in each[:3]])
        for at, each in enumerate(several):
            row, second = assemble(*pieces[3 * at : 3 * at + 3])
            yield ReaderExample(row, second, each[3], source)
