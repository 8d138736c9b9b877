"""Facts of policies and statements on tables: hand-written cases whose label is known."""

from __future__ import annotations

import random
import re

import pytest

from calibrator.lab.data.evidence import tables
from calibrator.lab.data.evidence.dialogues import Talk, claim, extraction, false_value
from calibrator.lab.data.evidence.facts import (
    House,
    PolicyFact,
    draw_fact,
    draw_facts,
    kinds,
    kinds_for,
)
from calibrator.lab.data.evidence.facts import random_house as any_house
from calibrator.lab.data.evidence.grids import SyntheticTable
from calibrator.lab.data.evidence.words.templates import data, fill, gerund, slots_of
from calibrator.lab.data.evidence.words.values import FactValue, Style, is_different, write

STYLE = Style("£", 0, 0, "%", 0.0, 0)


def _house() -> House:
    return House(data("domains")["library"], "Marlow Library", STYLE)


@pytest.mark.parametrize(
    ("act", "doing"),
    [
        ("bring a dog", "bringing a dog"),
        ("swap shifts", "swapping shifts"),
        ("leave and re-enter the site", "leaving and re-entering the site"),
        ("picnic in the garden", "picnicking in the garden"),
    ],
)
def test_acts_have_an_ing_form(act: str, doing: str) -> None:
    """The -ing form must be spelled as English does."""
    assert gerund(act) == doing


def test_templates_only_use_slots_that_they_have() -> None:
    """Every template of a kind has only the kind's own slots."""
    known = {"user", "users", "acting", "m"}
    for name, kind in kinds().items():
        texts = [each for key in kind if isinstance(kind[key], list) for each in kind[key]]
        texts = [t for each in texts for t in (each if isinstance(each, list) else [each])]
        for text in texts:
            assert slots_of(text) <= {*kind["slots"], *known}, (name, text)


def test_every_kind_has_right_and_wrong_replies() -> None:
    """Each kind gives right and wrong replies that differ."""
    rng = random.Random(2)
    for kind in kinds():
        house = any_house(rng)
        while kind not in kinds_for(house):
            house = any_house(rng)
        fact = draw_fact(kind, house, rng)
        right = {fact.right_reply(rng).text for _ in range(30)}
        wrong = {fact.wrong_reply(rng).text for _ in range(30)}
        assert right
        assert wrong
        assert not right & wrong, kind


def test_amounts_below_and_above_a_limit_are_judged_by_the_limit() -> None:
    """With 20 days to return, "after 15 days" must be in time in right replies only."""
    values = {"n": FactValue("days", 20.0), "good": FactValue("good", "printers")}
    fact = PolicyFact("return window", _house(), values)
    rng = random.Random(5)
    for _ in range(300):
        found = re.search(
            r"After (\d+) days .*(still|no longer|can no)", fact.right_reply(rng).text
        )
        if found:
            assert (int(found[1]) <= 20) == (found[2] == "still")


def test_facts_of_one_policy_do_not_collide() -> None:
    """No two facts of a policy may speak of the same subject."""
    for seed in range(40):
        rng = random.Random(seed)
        facts = draw_facts(any_house(rng), 14, rng)
        assert len({fact.subject for fact in facts}) == len(facts)


def test_equal_durations_are_no_change() -> None:
    """Two weeks and 14 days must count as the same, 14 days and 14 weeks must not."""
    assert not is_different(FactValue("days", 14.0), FactValue("weeks", 2.0))
    assert is_different(FactValue("days", 14.0), FactValue("weeks", 14.0))


def test_values_are_written_in_the_style_of_the_text() -> None:
    """Money, times and dates must follow the style."""
    rng = random.Random(1)
    assert write(FactValue("money", 4.5), STYLE, rng) == "£4.50"
    assert write(FactValue("time", 17.5), STYLE, rng) == "17:30"
    assert write(FactValue("date", "3 May"), Style("€", 1, 1, "%", 0.0, 1), rng) == "May 3"
    assert fill("$Who is here.", {"who": "the cook"}) == "The cook is here."


def _table() -> SyntheticTable:
    cells: dict[tuple[str, str], float | str] = {
        ("Moss", "population"): 400.0,
        ("Halden", "population"): 900.0,
        ("Bergen", "population"): 700.0,
        ("Moss", "mayor"): "Ida Lie",
        ("Halden", "mayor"): "Ola Ness",
        ("Bergen", "mayor"): "Ola Ness",
    }
    names = ["Moss", "Halden", "Bergen"]
    return SyntheticTable(data("tables")["cities"], names, ["population", "mayor"], cells, STYLE)


@pytest.mark.parametrize(
    ("maker", "true", "false"),
    [
        (tables.cell, "Moss has 400 inhabitants.", "Moss has 900 inhabitants."),
        (tables.extreme, "Halden is the most populous city.", "Moss is the most populous city."),
        (
            tables.comparison,
            "Moss has a lower population than Halden.",
            "Moss has a higher population than Halden.",
        ),
        (tables.membership, 'Halden and Bergen have "Ola Ness" as mayor.', None),
    ],
)
def test_statements_on_a_table_are_true_or_false(maker, true: str, false: str | None) -> None:  # type: ignore[no-untyped-def]
    """Right statements must be true and wrong ones false, whatever is drawn."""
    made: dict[bool, set[str]] = {True: set(), False: set()}
    for seed in range(400):
        for right in made:
            statement = maker(_table(), right, random.Random(seed))
            if statement is not None and not statement.short:
                made[right].add(statement.text)
    assert true in made[True]
    assert true not in made[False]
    assert not made[True] & made[False]
    if false is not None:
        assert false in made[False]
        assert false not in made[True]


def _talk() -> Talk:
    form = data("dialogues")["table booking"]
    values = {"people": FactValue("number", 4.0), "day": FactValue("weekday", "Monday")}
    return Talk(form, values, {"people": FactValue("number", 6.0)}, ["phone"], STYLE)


def test_the_last_word_counts_in_a_dialogue() -> None:
    """A corrected value must be the wrong one, and the correction the right one."""
    talk = _talk()
    assert FactValue("number", 6.0) in [
        false_value(talk, "people", random.Random(s)) for s in range(9)
    ]
    for seed in range(50):
        rng = random.Random(seed)
        assert "6" not in claim(talk, "people", talk.values["people"], rng)[1]
        assert '"people": 6' not in extraction(talk, "entail", rng)[1]
        assert extraction(talk, "neutral", rng)[1].count("phone") == 1
