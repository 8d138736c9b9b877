"""The sixty everyday questions: well formed, and in no other file of the packages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from calibrator.lab.judging.sensitivity.everyday import (
    FORMS,
    NO_NAME,
    SOURCE_MODELS,
    everyday_figures,
    everyday_items,
    everyday_questions,
)

ROOT = Path(__file__).parents[5]
PACKAGES = ("calibrator", "proxy", "policies", "pinocchio", "examples")
TEXT = {".py", ".yaml", ".json", ".jsonl", ".md", ".txt"}


def test_there_are_sixty_over_many_domains() -> None:
    """There are sixty different questions, over ten domains or more."""
    questions = everyday_questions()
    assert len(questions) == len({one.question for one in questions}) == 60
    for one in questions:
        assert all((one.domain, one.question, one.sentence, one.right, one.wrong)), one
        assert one.question.endswith("?")
        assert one.sentence.count("{}") == 1
    domains = Counter(one.domain for one in questions)
    assert len(domains) >= 10
    assert max(domains.values()) <= 10


def test_right_and_wrong_are_alike_but_not_the_same() -> None:
    """Right and wrong answers are alike: neither contains the other, or is longer as a rule."""
    longer = 0
    for one in everyday_questions():
        right, wrong = one.right.casefold(), one.wrong.casefold()
        assert right not in wrong
        assert wrong not in right
        words = re.findall(r"\w+", one.question.casefold())
        assert not all(word in words for word in re.findall(r"\w+", right))
        assert not all(word in words for word in re.findall(r"\w+", wrong))
        assert right[0].isdigit() == wrong[0].isdigit()
        longer += len(right) > len(wrong)
    assert 15 <= longer <= 45


def test_the_questions_are_in_no_other_file_of_the_packages() -> None:
    """No other file of the packages has a question with both of its answers."""
    paths = [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in TEXT and path.name != "everyday.yaml" and "node_modules" not in path.parts
    ]
    assert len(paths) > 100
    found = []
    for path in paths:
        text = path.read_text(encoding="utf-8").casefold()
        found += [
            (path.name, one.question)
            for one in everyday_questions()
            if one.question.casefold() in text
            and one.right.casefold() in text
            and one.wrong.casefold() in text
        ]
    assert found == []


def test_items_come_in_both_forms_under_every_name() -> None:
    """Items come right and wrong, short and as a sentence, without a name and with three."""
    items = everyday_items()
    assert len(items) == 4 * 2 * 60 * 2
    first = everyday_questions()[0]
    assert (items[0].answer, items[1].answer) == (first.right, first.wrong)
    assert items[120].answer == first.sentence.format(first.right)
    assert [items[n].source_model for n in (0, 240, 480, 720)] == [None, *SOURCE_MODELS[1:]]
    assert SOURCE_MODELS[0] == NO_NAME


def test_figures_are_of_their_form_and_name() -> None:
    """Figures are computed for each form and name."""
    sentences = {one.sentence.format(one.right) for one in everyday_questions()}
    confidence = [
        0.9 if item.source_model is None and item.answer in sentences else 0.4
        for item in everyday_items()
    ]
    found = {(one.form, one.model): one for one in everyday_figures(confidence)}
    assert set(found) == {(form, model) for form in FORMS for model in SOURCE_MODELS}
    assert (found["sentence", NO_NAME].auroc, found["sentence", NO_NAME].in_order) == (1, 1)
    assert found["short", NO_NAME].in_order == 0.5
    assert found["both", NO_NAME].in_order == 0.75
    assert found["both", NO_NAME].pairs == 120
    assert found["both", NO_NAME].right == pytest.approx(0.65)
    assert found["sentence", SOURCE_MODELS[1]].auroc == 0.5
