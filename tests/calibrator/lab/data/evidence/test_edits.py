"""Edits of sentences: each changes the sentence and keeps or changes its meaning as promised."""

from __future__ import annotations

import random

import pytest

from calibrator.lab.data.evidence.corpora import (
    HARMLESS,
    contract,
    from_passages,
    rewrite_date,
    shorten,
    split_sentences,
)
from calibrator.lab.data.evidence.edits import (
    ADDITIONS,
    CHANGES,
    add_negation,
    apply,
    change_antonym,
    change_calendar,
    change_name,
    change_number,
    change_phrase,
    exchange_names,
    remove_negation,
)

PASSAGE = (
    "The bridge at Halden was opened on 3 May 1931 by the engineer Ingrid Moe."
    " It is 412 metres long and cost about 1,200 crowns."
    " In 1954, the council did not repair the northern pier."
    " Tolls were always higher in summer than in winter."
    " The old ferry from Sarpsborg, which carried at least twelve wagons, stopped before the war."
    " Ingrid Moe hired Nils Berg in March 1932."
    " The toll house closes at 5 p.m. and will be sold to a museum."
)
SENTENCES = split_sentences(PASSAGE)


def test_sentences_are_split_at_their_ends() -> None:
    """Abbreviations such as "p.m." must not end a sentence, and all words must be kept."""
    assert len(SENTENCES) == 7
    assert " ".join(SENTENCES) == PASSAGE


@pytest.mark.parametrize("edit", [*CHANGES, *ADDITIONS, *HARMLESS, shorten])
def test_no_edit_returns_the_sentence_unchanged(edit) -> None:  # type: ignore[no-untyped-def]
    """An edit must change the sentence or return None, and apply to one of the sentences."""
    found = []
    for seed in range(40):
        for sentence in SENTENCES:
            edited = edit(sentence, PASSAGE, random.Random(seed))
            assert edited != sentence
            found.append(edited)
    assert any(found)


def _all(edit, sentence: str, passage: str = PASSAGE) -> set[str | None]:  # type: ignore[no-untyped-def]
    return {edit(sentence, passage, random.Random(seed)) for seed in range(60)}


def test_a_number_is_never_replaced_by_an_equal_one() -> None:
    """1,200 must not become 1200, and years must stay years."""
    for edited in _all(change_number, "It cost 1,200 crowns in 1931."):
        assert edited is not None
        assert not ("1,200" in edited or "1200" in edited) or "1931" not in edited


def test_weekdays_and_months_change_within_their_kind() -> None:
    """A month must become another month."""
    for edited in _all(change_calendar, "She came in March 1932."):
        assert edited is not None
        assert "March" not in edited
        assert edited.endswith("1932.")


def test_names_are_taken_from_the_passage() -> None:
    """A person must be replaced by another person of the passage."""
    passage = "Today the roof is done by Nils Berg. In 1931 the walls were built by Ingrid Moe."
    edited = _all(change_name, "Today the roof is done by Nils Berg.", passage)
    assert edited == {"Today the roof is done by Ingrid Moe."}


def test_hired_and_hiring_are_exchanged() -> None:
    """Exchanging names must keep the verb and swap both sides."""
    assert "Nils Berg hired Ingrid Moe in March 1932." in _all(exchange_names, SENTENCES[5])


@pytest.mark.parametrize(
    ("sentence", "negated"),
    [
        ("The hall is open.", "The hall is not open."),
        ("They can swim there.", "They cannot swim there."),
        ("The team won the cup.", "The team did not win the cup."),
    ],
)
def test_negations_are_grammatical(sentence: str, negated: str) -> None:
    """A verb must be negated as English does it."""
    assert negated in _all(add_negation, sentence)


def test_a_participle_is_not_negated_as_a_verb() -> None:
    """In "The letters found in the attic", "found" is not negated to "did not find"."""
    assert _all(add_negation, "The letters found in the attic pleased everyone.") == {None}


def test_negations_are_removed_with_their_form() -> None:
    """Removing a negation must leave a sentence without it."""
    assert _all(remove_negation, "The pier wasn't repaired.") == {"The pier was repaired."}
    assert _all(remove_negation, "Dogs cannot enter.") == {"Dogs can enter."}


def test_opposites_and_quantities_turn_round() -> None:
    """Opposites and bounds must be replaced by their counterparts."""
    assert "The southern pier is old." in _all(change_antonym, "The northern pier is old.")
    assert "It holds at most ten." in _all(change_phrase, "It holds at least ten.")
    assert _all(change_antonym, "She was named after a saint.") == {None}


@pytest.mark.parametrize(
    ("sentence", "same"),
    [
        ("It opened on 3 May 1931.", "It opened on May 3, 1931."),
        ("It closes at 5 p.m. on Mondays.", "It closes at 17:00 on Mondays."),
        ("It closes at 17:00.", "It closes at 5 pm."),
    ],
)
def test_dates_and_times_keep_their_value(sentence: str, same: str) -> None:
    """Another way to write a date or a time must mean the same."""
    assert same in _all(rewrite_date, sentence)


def test_short_forms_keep_the_main_clause() -> None:
    """A shortened sentence must keep its main clause, and contractions their meaning."""
    assert "The old ferry from Sarpsborg stopped before the war." in _all(shorten, SENTENCES[4])
    assert _all(contract, "It is not old.") == {"It isn't old."}


def test_apply_tries_every_edit_before_it_gives_up() -> None:
    """One of the edits must apply to a sentence with a number; none to a bare one."""
    assert apply(CHANGES, "The 40 men rest.", "The 40 men rest.", random.Random(1))
    assert apply(HARMLESS, "Dogs bark.", "Dogs bark.", random.Random(1)) is None


def test_passages_give_rows_of_every_label() -> None:
    """Passages must give all labels, and the same rows for the same seed."""
    other = PASSAGE.replace("Halden", "Moss").replace("bridge", "tunnel")
    passages = [PASSAGE, other] * 10
    rows = list(from_passages(passages, random.Random(3)))
    assert {row["label"] for row in rows} == {"entail", "contradict", "neutral"}
    assert rows == list(from_passages(passages, random.Random(3)))
    assert not list(from_passages(["", "Too short.", "No end of a sentence"], random.Random(3)))


def test_an_edited_sentence_can_be_on_either_side() -> None:
    """The original sentence must be right in some rows and contradicted in others."""
    rows = list(from_passages([PASSAGE] * 60, random.Random(4)))
    labels = {row["label"] for row in rows if row["hypothesis"] == SENTENCES[5]}
    assert {"entail", "contradict"} <= labels
