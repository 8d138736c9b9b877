"""Examples of known and unfamiliar tasks, and their variants."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from calibrator.lab.training.fits.task.examples import (
    KINDS,
    KNOWN,
    TaskExample,
    known_examples,
    own_examples,
    unfamiliar_examples,
)
from calibrator.lab.training.fits.task.fitting import teaching_examples
from calibrator.lab.training.fits.task.variants import relabel_options, strip_wording, vary_examples
from calibrator.readers.evidence.conversation import Conversation


def _write(path: Path, **row: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress((json.dumps({"question_id": "q", **row}) + "\n").encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder of labelled data with one row in each file."""
    _write(tmp_path / "train" / "riddles.jsonl.gz", question="What has keys but opens no lock?")
    _write(tmp_path / "train" / "proofs__nc.jsonl.gz", question="Prove it.")
    tools = 'User request: Wake me at six\n\nAvailable functions (JSON):\n[{"name": "alarm"}]'
    _write(tmp_path / "train" / "tools__no_licence.jsonl.gz", question=tools)
    messages = [{"role": "system", "content": "Sea is wet."}, {"role": "user", "content": "Is it?"}]
    _write(tmp_path / "grounding" / "train" / "boolq.jsonl.gz", messages=messages)
    _write(tmp_path / "grounding" / "train" / "qags__no_licence.jsonl.gz", messages=messages)
    _write(tmp_path / "grounding" / "train" / "pairs_x.jsonl.gz", premise="a", hypothesis="b")
    return tmp_path


def test_tools_are_taken_out_of_a_benchmarks_question(data: Path) -> None:
    """The list of functions is removed from a benchmark's question, and `has_tools` is kept."""
    found = {example.source: example for example in known_examples(data / "train", 9, 0)}
    assert found["tools"].conversation.request == "Wake me at six"
    assert found["tools"].has_tools
    assert not found["riddles"].has_tools


def test_rows_of_grounding_become_conversations(data: Path) -> None:
    """Rows of grounding become conversations: system messages are rules, pairs are no requests."""
    found = list(unfamiliar_examples(data / "grounding" / "train", 9, 0))
    assert [(example.source, example.kind) for example in found] == [
        ("boolq", "documents"),
        ("qags", "summaries"),
    ]
    assert found[0].conversation == Conversation("Is it?", "Sea is wet.")


def test_files_whose_licence_forbids_it_teach_nothing(data: Path) -> None:
    """Rows whose licence forbids it teach nothing."""
    sources = {example.source for example in teaching_examples(data) if not example.is_own}
    assert sources == {"riddles", "tools", "boolq"}


def test_own_requests_are_of_many_kinds_and_differ() -> None:
    """Own requests are of many kinds, and none occurs twice."""
    own = list(own_examples())
    kinds = {example.kind for example in own}
    assert kinds <= {KNOWN, *KINDS}
    assert len(kinds) > 12
    requests = [(example.conversation, example.has_tools) for example in own]
    assert len(set(requests)) == len(requests)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("[word sorting] pear fig", "pear fig"),
        ("Read this.\n\nQuestion: Who?\n\nProvide the correct letter.", "Who?"),
        ("Who wrote it?", "Who wrote it?"),
    ],
)
def test_a_benchmarks_fixed_wording_is_removed(question: str, expected: str) -> None:
    """A benchmark's fixed wording is removed, and the question stays."""
    assert strip_wording(question) == expected


def test_options_get_other_labels() -> None:
    """Options get other labels, all alike, and keep their texts."""
    question = "Which?\n\nA. red\nB. blue\nC. green"
    found = {relabel_options(question, random.Random(seed)) for seed in range(40)}
    assert len(found) > 5
    assert all(["red" in each, "blue" in each, "green" in each] == [True] * 3 for each in found)
    assert relabel_options("No options here.", random.Random(0)) == ""


def test_variants_of_known_questions_stay_known() -> None:
    """A variant has its original's group, kind and source."""
    original = TaskExample(Conversation("Who wrote Emma?"), False, "books", KNOWN, "g1")
    for example in vary_examples([original] * 50, 0):
        assert (example.kind, example.group, example.source) == (KNOWN, "g1", "books")


def test_a_text_moves_out_of_the_system_message() -> None:
    """Some variants move the document from the system message into the request."""
    example = TaskExample(
        Conversation("Is it?", "Sea is wet."), False, "boolq", "documents", may_teach=True
    )
    requests = [each.conversation.request for each in vary_examples([example] * 60, 0)]
    assert any(request.startswith("Is it?") and "Sea is wet." in request for request in requests)
    assert any(request.endswith("Is it?") and "Sea is wet." in request for request in requests)
    assert "Is it?" in requests
