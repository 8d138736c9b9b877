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
    """Return `sources.yaml`: the training files by kind, with the most rows of each.

    The kinds are `pairs`, `replies` and `passages`, mappings of file to number, and `made`, a
    number.
    """
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "sources.yaml").read_text())
    return found


def read_rows(folder: Path, name: str) -> list[Row]:
    """Return all rows, as dictionaries, of `<name>.jsonl.gz` in a folder.

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
    """Choose whole questions at random until there are at least `most` rows; return their rows.

    There may be fewer rows if there are no more. Rows with the same `question_id`, or else `group`,
    or else `id`, are of one question and stay together.
    """
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
    """Return (context, question, reply, label) of an entailment pair.

    The label is a number of `LABELS`. A premise of over `LONG_PREMISE` characters, or with a
    request, is reduced to the passages closest to it. The question is "" unless a short reply has
    no meaning without it.
    """
    premise, request, reply = row["premise"], row.get("question", ""), row["hypothesis"]
    if request or len(premise) > LONG_PREMISE:
        premise = chosen_context([premise], request, reply)
    return premise, question_beside(request, reply), reply, LABELS[row["label"]]


def reply_texts(row: Row) -> tuple[str, str, str, int]:
    """Return (context, question, reply, label) of a graded reply to a conversation.

    The context are the passages of the conversation's documents closest to reply and request. The
    label is `ENTAIL` for a right reply and `NOT_ENTAIL` for a wrong one. A reply that is no text is
    written as JSON.
    """
    conversation = read_conversation(row["messages"])
    reply = row["response"] if isinstance(row["response"], str) else json.dumps(row["response"])
    request = conversation.instruction
    context = chosen_context(documents_of(conversation), request, reply)
    label = ENTAIL if row["correct"] else NOT_ENTAIL
    return context, question_beside(request, reply), reply, label


def chosen_context(documents: Sequence[str], request: str, reply: str) -> str:
    """Return the passages closest to reply and request, joined by lines.

    They have up to `CONTEXT_WORDS` words and are in the order of `documents`. The reply counts more
    than the request.
    """
    queries = [(reply, 1.0), (request, REQUEST_WEIGHT)]
    return "\n".join(Passages(documents).closest_units(queries, CONTEXT_WORDS))


def examples(data: Path, cut: Cutter, seed: int) -> Iterator[ReaderExample]:
    """Yield all examples of the reader: those of `data/train`, synthetic pairs and edited passages.

    Pairs come first, then graded replies, synthetic pairs and edits of passages. The numbers of
    rows are those of `sources.yaml`, drawn at random; the same seed gives the same examples. `cut`
    cuts texts into word pieces. Raises RowError or OSError for a file that cannot be read.
    """
    rng = random.Random(seed)
    train, named = data / "train", sources()
    for name, most in named["pairs"].items():
        rows = by_question(read_rows(train, name), most, rng)
        yield from _cut((pair_texts(row) for row in rows), name, cut)
    for name, most in named["replies"].items():
        rows = by_question(read_rows(train, name), most, rng)
        yield from _cut((reply_texts(row) for row in rows), name, cut)
    synthetic = islice(made_rows(seed), named["made"])
    yield from _cut((pair_texts(row) for row in synthetic), "made", cut)
    edited = from_passages(_passages(train, named["passages"], rng), rng)
    yield from _cut((pair_texts(row) for row in edited), "passages", cut)


def _passages(train: Path, files: Mapping[str, int], rng: random.Random) -> list[str]:
    """Return passages of the files, at most as many of each as `files` states, shuffled.

    A row's passage is its premise, or the longest message.
    """
    found: list[str] = []
    for name, most in files.items():
        texts = sorted({_passage(row) for row in read_rows(train, name)})
        found += rng.sample(texts, min(most, len(texts)))
    rng.shuffle(found)
    return found


def _passage(row: Row) -> str:
    """Return a row's premise, cut to 3,000 characters, or else its longest message."""
    if "premise" in row:
        return str(row["premise"])[:3000]
    return max((str(message.get("content")) for message in row["messages"]), key=len)


def _cut(
    texts: Iterable[tuple[str, str, str, int]], source: str, cut: Cutter
) -> Iterator[ReaderExample]:
    """Yield the examples of texts (context, question, reply, label), cut into word pieces by `cut`.

    A thousand are cut at a time. `source` is the name that the examples get.
    """
    waiting = iter(texts)
    while several := list(islice(waiting, 1000)):
        pieces = cut([text for each in several for text in each[:3]])
        for at, each in enumerate(several):
            row, second = assemble(*pieces[3 * at : 3 * at + 3])
            yield ReaderExample(row, second, each[3], source)
