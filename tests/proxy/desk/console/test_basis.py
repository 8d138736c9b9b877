"""What the desk says about a confidence: how many of a hundred are right, or what was checked."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import version_of
from proxy.desk.decisions.basis import in_words, is_learnt_here, mark_words, meaning

HUNDRED = "Of a hundred replies like this, about 41 are correct."
SHIPPED = version_of("embedded")  # with the curve that it was shipped with
NOT_TRAINED = "The calibrator was not trained on tasks of this kind."


@dataclass
class Kept:
    """The fields of a stored reply that concern its score."""

    confidence: float | None = 0.41
    calibrator: str | None = "embedded@0b0fe558"
    findings: str | None = None


def kept(*basis: str, is_familiar: bool = True, calibrator: str = "embedded@0b0fe558") -> Kept:
    values = {"status": "scored", "basis": basis, "familiar": is_familiar}
    return Kept(calibrator=calibrator, findings=json.dumps(values))


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        (kept("context", "likeness"), HUNDRED),
        (kept("computed"), HUNDRED),
        (kept("likeness"), "Nothing about this reply was checked."),
        (kept("likeness", calibrator=SHIPPED), "Nothing about this reply was checked."),
        (kept("likeness", calibrator=f"{SHIPPED}+platt@9c1d02ab"), HUNDRED),
        (
            kept("likeness", calibrator="embedded@0b0fe558+opinion@9c1d02ab"),
            "Nothing about this reply was checked.",
        ),
        (
            kept("likeness", is_familiar=False),
            f"Nothing about this reply was checked. {NOT_TRAINED}",
        ),
        (
            kept("likeness", is_familiar=False, calibrator=f"{SHIPPED}+platt@2"),
            f"Nothing about this reply was checked. {NOT_TRAINED}",
        ),
        (
            kept("context", "facts", "likeness", is_familiar=False),
            "Checked against the text that the model was given and known facts. " + NOT_TRAINED,
        ),
        (Kept(), "What was checked about this reply is not on record."),
        (Kept(calibrator="embedded@1+isotonic@2"), HUNDRED),
        (Kept(confidence=None), None),
    ],
)
def test_a_share_is_promised_only_where_it_was_measured(held: Kept, sentence: str | None) -> None:
    """A share is stated for a familiar task that was checked, or with labels of this deployment."""
    assert meaning(held) == sentence


@pytest.mark.parametrize(
    ("calibrator", "is_learnt"),
    [
        (None, False),
        ("embedded@1", False),
        (SHIPPED, False),
        ("embedded@1+platt@2", False),
        ("embedded@1+platt@2+platt@3", True),
        ("embedded@1+isotonic@2", True),
        ("embedded@1+opinion@2", False),
        ("embedded@1+platt@2+opinion@3", False),
        ("embedded@1+opinion@2+platt@3", True),
        ("embedded@1+platt@2+judge@3", True),
        ("embedded@1+judge@2", True),
        ("words+more", False),
    ],
)
def test_the_name_shows_whose_labels_were_used(calibrator: str | None, is_learnt: bool) -> None:
    """Own labels show in the name as a recalibration or weights after the shipped curve."""
    assert is_learnt_here(calibrator) is is_learnt


def test_each_basis_has_words() -> None:
    """Each basis has words, joined by commas and a last `and`."""
    assert in_words(["likeness"]) == "its likeness to replies that were right or wrong"
    assert in_words(["computed", "facts", "opinions"]) == (
        "what can be computed, known facts and the answers of other models"
    )


def test_words_are_marked_wherever_they_stand() -> None:
    """Words are marked in any case, also side by side and where two of them overlap."""
    pieces = mark_words("Noon or noon-time, 6 pm.", ["noon", "6 pm", "n or"])
    assert pieces == [
        ("Noon or", True),
        (" ", False),
        ("noon", True),
        ("-time, ", False),
        ("6 pm", True),
        (".", False),
    ]
    assert mark_words("nothing", ["", "else"]) == [("nothing", False)]
    assert mark_words("", ["x"]) == []


@given(st.text(max_size=50), st.lists(st.text(max_size=5), max_size=5))
def test_no_letter_is_lost(sentence: str, words: list[str]) -> None:
    """Whatever is marked, the pieces together are the sentence."""
    assert "".join(text for text, _ in mark_words(sentence, words)) == sentence
