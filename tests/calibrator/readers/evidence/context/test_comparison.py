"""Comparison of a reply with its context: words, numbers, names, negations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calibrator.readers.evidence.context.comparison import FEATURES, ContextComparison, compare
from calibrator.readers.evidence.context.passages import Passages

CONTEXT = [
    "Members may borrow eight books for three weeks. Late books cost 20 cents a day.",
    "Ms Okafor leads the reading group on Tuesday evenings. Food is not allowed in the hall.",
]


def compared(reply: str, request: str = "") -> ContextComparison:
    """Compare a reply with the context above."""
    return compare(reply, Passages(CONTEXT), request)


def value(found: ContextComparison, name: str) -> float:
    """Return a feature by its name."""
    return found.values[FEATURES.index(name)]


def test_every_feature_has_a_value() -> None:
    """Each feature has a value."""
    assert len(compared("Members may borrow eight books.").values) == len(FEATURES)


def test_copied_words_are_covered() -> None:
    """A sentence copied from the context is covered, another one hardly."""
    assert value(compared("Members may borrow eight books for three weeks."), "covered") == 1
    assert value(compared("The swimming pool closes early in winter."), "covered") == 0


def test_an_invented_number_is_missing() -> None:
    """A number that the context lacks is reported; words and digits are the same number."""
    found = compared("You can borrow 8 books for 5 weeks.")
    assert found.sentences[0].missing == ["5"]
    assert value(found, "numbers_missing") == 0.5


def test_an_invented_name_is_missing() -> None:
    """A name that neither context nor request has is reported."""
    assert compared("The group is led by Petra.").sentences[0].missing == ["petra"]
    assert compared("It is led by Petra.", "Who is Petra?").sentences[0].missing == []


def test_another_negation_is_noticed() -> None:
    """A sentence that lacks its closest unit's negation is reported."""
    assert compared("Food is allowed in the hall.").sentences[0].has_other_negation
    assert not compared("Food is not allowed in the hall.").sentences[0].has_other_negation


def test_opposites_are_noticed() -> None:
    """A word whose opposite is in the closest unit is reported."""
    found = compare(
        "The pass is refundable on weekends.", Passages(["The pass is valid on weekdays."]), ""
    )
    assert found.sentences[0].opposed == ["weekends"]


@given(st.text(max_size=400), st.text(max_size=100))
def test_any_reply_can_be_compared(reply: str, request: str) -> None:
    """Any reply gives features within bounds."""
    found = compared(reply, request)
    assert len(found.values) == len(FEATURES)
    assert all(-1 <= each <= 3000 for each in found.values)


def test_a_huge_reply_is_not_complete() -> None:
    """A reply beyond the bound is compared in part and reported as incomplete."""
    assert not compared("One more sentence. " * 2_000).is_complete
