"""Requests of known and unfamiliar tasks, from which `fitting` learns the difference.

Known are the questions of the benchmarks that the calibrator is trained on. Unfamiliar are the
tasks of `grounding/` (a document, a policy, a schema, labels, another language ..) and the
requests of `requests.yaml`. Fixed wordings are varied on both sides, so that what is learned is
the kind of task and not a data set's formatting.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from calibrator.evidence.conversation import Conversation, Turn, read_conversation

REQUESTS: Final = Path(__file__).parent / "requests.yaml"
NOT_LICENSED: Final = ("__no_licence", "__nc")  # may judge, but not be learned from
KNOWN: Final = "known"

# Kinds of tasks that are left out together; a file that is named nowhere is a kind of its own.
KINDS: Final = {
    "documents": "boolq pubmedqa condaqa contrast_qa multirc attribution_bench conditionalqa"
    " halueval_qa fool_me_twice documents",
    "tables": "wikitables tabfact infotabs tatqa tables",
    "summaries": "summedits cliff qags xsum_faith faithbench faceval dialsummeval summaries",
    "dialogues": "dream diahalu dialogues turns",
    "talk": "begin wow_attribution halueval_general chat advice xstest clariq",
    "labels": "banking_labels clinc_labels labels judging",
    "JSON": "snips_slots sgd_state receipts JSON",
    "translation": "demetr mt_hallucination mt_quality mt_ted shroom24 translation",
    "data to text": "e2e_cleaning webnlg_human data to text",
    "rewriting": "simplification rewriting",
    "support": "or_sharc star_flow tau2_retail support roles agent_runs tooltalk",
    "SQL": "sql_spider SQL",
    "code edits": "code edits commands",
    "forms": "ifeval_multi forms writing explanations",
    "languages": "sysbench halluqa_zh languages",
}
ALSO_KNOWN: Final = ("quixbugs",)  # programs to be written, as in the benchmarks
TOOLS_SIGN: Final = "\n\nAvailable functions (JSON):"
_REQUEST_SIGN: Final = "User request: "
_GENERIC_RULES: Final = (
    "You are a helpful assistant.",
    "You are a helpful, respectful and honest assistant.",
    "You are a helpful AI assistant. Answer the user's questions.",
    "Answer concisely.",
    "Be brief.",
    "You are ChatGPT, a large language model trained by OpenAI.",
    "You are Claude, an AI assistant.",
    "You are a helpful assistant. Think step by step.",
    "You are an AI assistant. Today is Monday, 3 June.",
    "You are an expert. Answer the question.",
)
_BEFORE_QUESTION: Final = (
    "Question: ",
    "Q: ",
    "Answer the question. ",
    "Please answer: ",
    "Hi! ",
    "Solve: ",
    "Answer the following question.\n\n",
    "Problem:\n",
)
_AFTER_QUESTION: Final = (
    "\nAnswer:",
    " Think step by step.",
    " Answer briefly.",
    "\n\nPlease show your reasoning.",
    " Give the final answer at the end.",
    " thanks",
)
_LABELS: Final = ("Text:", "Context:", "Passage:", "Document:", "Article:", "Input:", "---", '"""')


@dataclass(frozen=True, slots=True)
class Example:
    """A request with the data set and the kind of task that it is from."""

    conversation: Conversation
    has_tools: bool
    source: str  # a file without its suffixes, or a kind of `requests.yaml`
    kind: str  # `KNOWN`, or the kind that is left out together
    is_own: bool = False  # written for this project
    may_teach: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the calibrator was trained on such tasks."""
        return self.kind == KNOWN


def known_examples(folder: Path, most: int, seed: int) -> Iterator[Example]:
    """Yield at most `most` distinct questions of each benchmark in a folder of labelled rows."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        rows = {row["question_id"]: row for row in _rows(path)}
        for row in _drawn(list(rows.values()), most, seed):
            question, sign, _ = row["question"].partition(TOOLS_SIGN)
            if sign:
                question = question.removeprefix(_REQUEST_SIGN)
            yield Example(
                Conversation(question),
                bool(sign),
                _source(path),
                KNOWN,
                may_teach="__nc" not in path.name,
            )


def unfamiliar_examples(folder: Path, most: int, seed: int) -> Iterator[Example]:
    """Yield at most `most` requests of each file of replies in a folder of `grounding`."""
    kinds = {source: kind for kind, names in KINDS.items() for source in names.split()}
    for path in sorted(folder.glob("*.jsonl.gz")):
        source = _source(path)
        if source.startswith("pairs_"):
            continue
        rows = {row["question_id"]: row for row in _rows(path)}
        for row in _drawn(list(rows.values()), most, seed):
            yield Example(
                read_conversation(row["messages"]),
                bool(row.get("tools")),
                source,
                KNOWN if source in ALSO_KNOWN else kinds.get(source, source),
                may_teach=not any(mark in path.name for mark in NOT_LICENSED),
            )


def own_examples(path: Path = REQUESTS) -> Iterator[Example]:
    """Yield the requests that were written for this project."""
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))
    named = sorted(KINDS)
    for source, entries in listed["known"].items():
        for entry in entries:
            yield _own(entry, f"own {source}", KNOWN)
    for source, entries in listed["unfamiliar"].items():
        kind = next((k for k in named if source == k or f" {source} " in f" {KINDS[k]} "), source)
        for entry in entries:
            yield _own(entry, f"own {source}", kind)


def _own(entry: Any, source: str, kind: str) -> Example:
    parts = {"request": entry} if isinstance(entry, str) else entry
    roles = ("user", "assistant")
    conversation = Conversation(
        request=parts["request"],
        rules=parts.get("rules", ""),
        earlier=tuple(Turn(roles[at % 2], text) for at, text in enumerate(parts.get("earlier", []))),
        results=tuple(parts.get("results", [])),
    )
    return Example(conversation, bool(parts.get("tools")), source, kind, is_own=True)


def varied(examples: Sequence[Example], seed: int) -> Iterator[Example]:
    """Yield one variant of each example: other words around a question, another place of a text."""
    for at, example in enumerate(examples):
        chance = random.Random(zlib.crc32(f"{seed} {at} {example.source}".encode()))
        vary = _known_variant if example.is_known else _unfamiliar_variant
        yield replace(example, conversation=vary(example, chance))


def _known_variant(example: Example, chance: random.Random) -> Conversation:
    """Return a question in the words of a user, who leaves out a benchmark's fixed wording."""
    request = bare(example.conversation.request)
    if chance.random() < 0.35:
        request = chance.choice(_BEFORE_QUESTION) + request
    if chance.random() < 0.25:
        request += chance.choice(_AFTER_QUESTION)
    if len(request) < 200 and chance.random() < 0.25:
        request = chance.choice((request.lower(), request.rstrip("?. ")))
    rules = chance.choice(_GENERIC_RULES) if chance.random() < 0.3 else ""
    return replace(example.conversation, request=request, rules=rules)


def bare(question: str) -> str:
    """Return a benchmark's question without the fixed wording around it."""
    for opening in ("\n\nQuestion: ", "[PYTHON]\n"):  # RouterArena, CRUXEval
        if opening in question[:600]:
            question = question.partition(opening)[2]
    for ending in ("\n\nProvide the correct", " Before providing answer to", " To answer the question"):
        question = question.partition(ending)[0]
    head, sign, rest = question.partition("\n")
    if sign and head.startswith("请你") and rest:  # LawBench
        question = rest
    if question.startswith("[") and "] " in question[:40]:  # BBH-mistake
        question = question.partition("] ")[2]
    return question.strip()


def _unfamiliar_variant(example: Example, chance: random.Random) -> Conversation:
    """Return a request whose text stands elsewhere, under another label or none."""
    conversation = example.conversation
    first, sign, rest = conversation.request.partition("\n\n")
    rules = conversation.rules
    if rules and not conversation.earlier and chance.random() < 0.5:
        return replace(
            conversation,
            request=_joined(conversation.request, _unwrapped(rules), chance),
            rules=chance.choice(("", *_GENERIC_RULES[:2])),
        )
    if not sign or conversation.earlier or rules:
        return conversation
    return replace(conversation, request=_joined(first, rest, chance))


def _unwrapped(rules: str) -> str:
    for opening in ("Context:\n", "You are an assistant. Use the following document.\n\n"):
        rules = rules.removeprefix(opening)
    return rules.removesuffix("\n\nStay with the context.")


def _joined(asked: str, text: str, chance: random.Random) -> str:
    """Return an instruction and a text in one of the orders in which users write them."""
    label = chance.choice(_LABELS) if chance.random() < 0.5 else ""
    gap = chance.choice(("\n\n", "\n", "\n\n", " "))
    labelled = f"{label}{chance.choice((' ', gap))}{text}" if label else text
    if label in ("---", '"""'):
        labelled = f"{label}\n{text}\n{label}"
    return chance.choice((f"{asked}{gap}{labelled}", f"{labelled}{gap}{asked}"))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _drawn(rows: list[dict[str, Any]], most: int, seed: int) -> list[dict[str, Any]]:
    return random.Random(seed).sample(rows, most) if len(rows) > most else rows


def _source(path: Path) -> str:
    name = path.name.removesuffix(".jsonl.gz")
    for mark in NOT_LICENSED:
        name = name.removesuffix(mark)
    return name
