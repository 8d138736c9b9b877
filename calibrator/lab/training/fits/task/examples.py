"""Requests of known and unfamiliar tasks, from which `fitting` learns the difference.

Known are the questions of the benchmarks in the training data. Unfamiliar are the tasks of
`grounding/` (a document, a policy, a schema, labels, another language ..) and the requests of
`requests.yaml`.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from calibrator.readers.evidence.conversation import Conversation, Turn, read_conversation

REQUESTS: Final = Path(__file__).parent / "requests.yaml"
NOT_LICENSED: Final = ("__no_licence", "__nc")  # for testing only, not for training
KNOWN: Final = "known"

# Kinds of tasks that are left out together; a file that is not listed is a kind of its own.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "documents": (
        *("boolq", "pubmedqa", "condaqa", "contrast_qa", "multirc", "attribution_bench"),
        *("conditionalqa", "halueval_qa", "fool_me_twice", "documents"),
    ),
    "tables": ("wikitables", "tabfact", "infotabs", "tatqa", "tables"),
    "summaries": (
        *("summedits", "cliff", "qags", "xsum_faith", "faithbench", "faceval", "dialsummeval"),
        "summaries",
    ),
    "dialogues": ("dream", "diahalu", "dialogues", "turns"),
    "talk": (
        *("begin", "wow_attribution", "halueval_general", "xstest", "clariq"),
        *("chat", "advice"),
    ),
    "labels": ("banking_labels", "clinc_labels", "labels", "judging"),
    "JSON": ("snips_slots", "sgd_state", "receipts", "JSON"),
    "translation": (
        *("demetr", "mt_hallucination", "mt_quality", "mt_ted", "shroom24"),
        "translation",
    ),
    "data to text": ("e2e_cleaning", "webnlg_human", "data to text"),
    "rewriting": ("simplification", "rewriting"),
    "support": (
        *("or_sharc", "star_flow", "tau2_retail", "agent_runs", "tooltalk"),
        *("support", "roles"),
    ),
    "SQL": ("sql_spider", "SQL"),
    "code edits": ("code edits", "commands"),
    "forms": ("ifeval_multi", "forms", "writing", "explanations"),
    "languages": ("sysbench", "halluqa_zh", "languages"),
}
ALSO_KNOWN: Final = ("quixbugs",)  # programs to be written, as in the benchmarks
TOOLS_SIGN: Final = "\n\nAvailable functions (JSON):"
_REQUEST_SIGN: Final = "User request: "


@dataclass(frozen=True, slots=True)
class TaskExample:
    """A request with the data set and the kind of task that it is from."""

    conversation: Conversation
    has_tools: bool
    source: str  # a file without its suffixes, or a kind of `requests.yaml`
    kind: str  # `KNOWN`, or the kind that is left out together
    group: str = ""  # the question; equal for its variants
    is_own: bool = False  # written for this project
    may_teach: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the calibrator was trained on such tasks."""
        return self.kind == KNOWN


def known_examples(folder: Path, most: int, seed: int) -> Iterator[TaskExample]:
    """Yield at most `most` distinct questions of each `*.jsonl.gz` of labelled rows in a folder.

    All are of the kind `known`. A list of functions at a question's end is removed and sets
    `has_tools`. Files with `__nc` in their name get `may_teach` False.
    """
    for path in sorted(folder.glob("*.jsonl.gz")):
        rows = {row["question_id"]: row for row in _rows(path)}
        for row in _draw_rows(list(rows.values()), most, seed):
            question, sign, _ = row["question"].partition(TOOLS_SIGN)
            if sign:
                question = question.removeprefix(_REQUEST_SIGN)
            yield TaskExample(
                Conversation(question),
                bool(sign),
                _source(path),
                KNOWN,
                row["question_id"],
                may_teach="__nc" not in path.name,
            )


def unfamiliar_examples(folder: Path, most: int, seed: int) -> Iterator[TaskExample]:
    """Yield at most `most` requests of each `*.jsonl.gz` of replies in a folder of `grounding`.

    Files that begin with `pairs_` are skipped. The kind is that of `KINDS`, or `known` for those in
    `ALSO_KNOWN`. Files whose licence forbids training get `may_teach` False.
    """
    for path in sorted(folder.glob("*.jsonl.gz")):
        source = _source(path)
        if source.startswith("pairs_"):
            continue
        rows = {row["question_id"]: row for row in _rows(path)}
        for row in _draw_rows(list(rows.values()), most, seed):
            yield TaskExample(
                read_conversation(row["messages"]),
                bool(row.get("tools")),
                source,
                KNOWN if source in ALSO_KNOWN else _kind_of(source),
                row["question_id"],
                may_teach=not any(mark in path.name for mark in NOT_LICENSED),
            )


def own_examples(path: Path = REQUESTS) -> Iterator[TaskExample]:
    """Yield the requests of `requests.yaml`, first known kinds, then unfamiliar ones.

    Their source is such as `own facts`, and `is_own` is True.
    """
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))
    for source, entries in listed["known"].items():
        for entry in entries:
            yield _own_example(entry, f"own {source}", KNOWN)
    for source, entries in listed["unfamiliar"].items():
        for entry in entries:
            yield _own_example(entry, f"own {source}", _kind_of(source))


def _kind_of(source: str) -> str:
    """Return the kind in `KINDS` of a data set or of own requests: `tables` for `tabfact`.

    A source that is not listed is a kind of its own, and returned.
    """
    return next((kind for kind, sources in KINDS.items() if source in sources), source)


def _own_example(entry: Any, source: str, kind: str) -> TaskExample:
    """Return an example of an entry of `requests.yaml`.

    The entry is a request, or a mapping with `request` and some of `rules`, `earlier` (turns, the
    user's first), `results` and `tools`.
    """
    parts = {"request": entry} if isinstance(entry, str) else entry
    roles = ("user", "assistant")
    earlier = enumerate(parts.get("earlier", []))
    conversation = Conversation(
        request=parts["request"],
        rules=parts.get("rules", ""),
        earlier=tuple(Turn(roles[at % 2], text) for at, text in earlier),
        results=tuple(parts.get("results", [])),
    )
    tools = bool(parts.get("tools"))
    return TaskExample(conversation, tools, source, kind, parts["request"], is_own=True)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows, dictionaries, of a gzipped file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _draw_rows(rows: list[dict[str, Any]], most: int, seed: int) -> list[dict[str, Any]]:
    """Return `most` random rows, or all if there are no more; the same seed draws the same."""
    return random.Random(seed).sample(rows, most) if len(rows) > most else rows


def _source(path: Path) -> str:
    """Return a file's name without `.jsonl.gz` and without its licence marks.

    An example is `boolq` for `boolq__nc.jsonl.gz`.
    """
    name = path.name.removesuffix(".jsonl.gz")
    for mark in NOT_LICENSED:
        name = name.removesuffix(mark)
    return name
