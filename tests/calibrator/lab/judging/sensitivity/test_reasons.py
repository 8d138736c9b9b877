"""Reasons of a low number: taking away what they name raises the number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrator.embedded.calibrator import NOT_KNOWN, OFTEN_WRONG
from calibrator.lab.data.calls.taken_away import _EDITS, taken_away
from calibrator.lab.judging.sensitivity.reasons import (
    _OF_MODELS,
    _OF_TEXTS,
    cut_to_sentence,
    number_arrived_at,
    option_argued_for,
)
from calibrator.loading import load_scorer
from calibrator.readers.calls import read_reply, reasons
from calibrator.readers.calls.notes.marks import BY_SCHEMA
from calibrator.readers.calls.reasons import _BY_DATE, _BY_RULE, _BY_STEP, call_doubts
from calibrator.readers.inspection import CHECKS
from calibrator.rows.rows import Row, parse_row
from calibrator.scorer import Item, Scorer, ToolUse
from pinocchio.commands import cli
from tests.builders.labelled_rows import write
from tests.calibrator.readers.calls.conversations import RIGHT, earlier_call, renting

GASES = "Which gas do plants take up?\nA. nitrogen\nB. helium\nC. carbon dioxide\nD. argon"
# Reasons that are given only beside others
BELIEVED = ("the tool was not offered", "a date is not in the calendar")
ARGUED = "Plants take up carbon dioxide from the air. So it is carbon dioxide. The answer is ({})."


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer("embedded", "cpu")


def row(question: str, response: Any, **more: Any) -> Row:
    fields = {"question": question, "response": response, "correct": 0, **more}
    return parse_row({"id": question + str(response), "question_id": question, **fields})


def _reasoned(used: ToolUse, words: str) -> str:
    return next(each for each in reasons(read_reply(used)) if each.startswith(words))


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (renting(RIGHT | {"boat_id": "B-77"}), "value not in conversation: boat_id"),
        (renting(RIGHT | {"boat_id": "<id>"}), "placeholder: boat_id"),
        (renting(name="hire_boat"), "the tool was not offered"),
        (renting(RIGHT | {"hours": "three"}), "an argument has another type"),
        (renting(RIGHT | {"day": "2031-02-30"}), "a date is not in the calendar"),
        (
            renting(
                before=earlier_call(
                    "rent_boat",
                    RIGHT,
                    "Rented the Pike, B-29.",
                )
            ),
            "the same call has been made already",
        ),
    ],
)
def test_an_edit_takes_away_what_a_reason_names(scorer: Scorer, used: ToolUse, words: str) -> None:
    """An edit takes away what its reason names, and a number that was low for it rises."""
    reason = _reasoned(used, words)
    edited = taken_away(used, reason)
    assert edited is not None
    assert reason not in reasons(read_reply(edited))
    before, after = scorer.score_batch(
        [Item("", "", "gpt-4o", tool_use=each) for each in (used, edited)]
    )
    print(reason, round(before.confidence, 4), round(after.confidence, 4))
    assert (after.confidence > before.confidence) == (words not in BELIEVED)


def test_the_study_knows_every_reason_by_its_words() -> None:
    """The study has an edit for every reason, except one that no edit of the texts can remove."""
    of_texts = {OFTEN_WRONG, NOT_KNOWN, *(check.finding for check in CHECKS)}
    assert of_texts == {*_OF_MODELS, *_OF_TEXTS, "it does not answer the question"}
    facts = {text for each in (BY_SCHEMA, _BY_STEP, _BY_RULE, _BY_DATE) for text in each.values()}
    of_calls = {*facts, "value not in conversation", "placeholder"}
    assert of_calls == {*_EDITS, "the arguments are no JSON object"}


def test_a_fact_of_small_effect_is_no_reason() -> None:
    """A fact that hardly moves the number is shown at the desk and not as a reason."""
    used = renting(RIGHT | {"day": "2031-07-11"}, request="Rent the Pike on Thursday for 3 hours.")
    weekday = "a date is not on the weekday that was asked for"
    assert weekday in call_doubts(used).reasons
    assert weekday not in reasons(read_reply(used))


def test_what_no_edit_takes_away_is_left_alone() -> None:
    """A reason without a known edit, or that no edit removes, gives None."""
    assert taken_away(renting(), "it does not answer the question") is None
    # This reason does not apply here.
    assert taken_away(renting(), "a range ends before it starts") is not None
    bare = ToolUse((), (), renting(RIGHT | {"boat_id": "B-77"}).message)
    for near in ("", ", differs from b-17"):
        assert taken_away(bare, f"value not in conversation: boat_id{near}") is None


def test_a_value_that_the_tool_describes_is_not_called_unfounded() -> None:
    """A value that the description of its argument or tool names is not unfounded."""
    used = renting(RIGHT | {"boat_id": "B-77"})
    described = json.loads(json.dumps(used.tools))
    for each in described:
        held = each["function"]["parameters"]["properties"].get("boat_id")
        if held is not None:
            held["description"] = "The boat, B-77 for whoever does not mind."
    assert _reasoned(used, "value not in conversation: boat_id")
    found = reasons(read_reply(ToolUse(used.messages, described, used.message)))
    assert not any(reason.startswith("value not in conversation") for reason in found)


def test_replies_of_text_are_corrected() -> None:
    """Replies of text are corrected: the number or option of the working, a whole sentence."""
    assert number_arrived_at(row("6 * 7?", "6 * 7 = 42. The answer is 41")) == (
        "6 * 7 = 42. The answer is 42"
    )
    assert number_arrived_at(row("6 * 7?", "6 * 7 = 42. The answer is 42")) is None
    assert option_argued_for(row(GASES, ARGUED.format("B"))) == ARGUED.format("C")
    assert option_argued_for(row(GASES, ARGUED.format("C"))) is None
    assert cut_to_sentence(row("Why?", "It rains. And then the")) == "It rains."
    assert cut_to_sentence(row("Why?", "and then the")) is None


def test_a_weak_models_name_is_a_reason_where_a_middling_one_is_surer(scorer: Scorer) -> None:
    """A weak model's name is a reason, and a better model's name is not, for the same reply."""
    question = "What is the smallest prime p for which 2^p - 1 is not prime and p > 20?"
    answer = "After checking a few cases the smallest such prime is 23. The answer is 23."
    weak, able = scorer.score_batch(
        [Item(question, answer, name) for name in ("gpt-3-6b-finetuning", "gemini-1.5-pro-002")]
    )
    assert weak.because == ("the model is often wrong on such questions",)
    assert weak.confidence + 0.05 < able.confidence
    assert "the model is often wrong on such questions" not in able.because


def test_the_study_prints_and_writes(tmp_path: Path) -> None:
    """`pinocchio study reasons` prints a line for each reason, and one for all together."""
    wrong = [{"question": f"{GASES} ({n})", "question_id": f"q{n}", "id": f"{n}", "correct": 0,
              "response": ARGUED.format("B"), "model": "gpt-4o"} for n in range(3)]  # fmt: skip
    output = tmp_path / "study.json"
    file = write(tmp_path / "rows.jsonl", wrong)
    result = CliRunner().invoke(cli, ["study", "reasons", str(file), "-o", str(output)])
    assert result.exit_code == 0, result.stderr
    found = json.loads(output.read_text())
    assert found["rows"] == 3
    assert [each["told"] for each in found["entries"]] == [3] * len(found["entries"])
    assert result.stdout.splitlines()[-1].split()[0] == "all"
