"""The facts of a policy, and right replies, wrong replies and questions about them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from calibrator.lab.data.evidence.words.templates import (
    choose_words,
    data,
    fill,
    gerund,
    plural,
    slots_of,
)
from calibrator.lab.data.evidence.words.values import (
    FactValue,
    Style,
    is_different,
    other_value,
    parse_slot,
    write,
)

# Slots that are drawn from the words of the house, in words/domains.yaml, with their units.
POOLS = {
    "goods": "good",
    "act": "act",
    "offer": "offer",
    "paper": "paper",
    "group": "group",
    "staff": "staff",
}
# Kinds of facts that could contradict each other in one text.
CLASHES = ({"opening hours", "closed day"},)


@dataclass(frozen=True)
class House:
    """A fictional company or office: its words (words/domains.yaml), name and style of values."""

    words: dict[str, Any]
    name: str
    style: Style

    @property
    def user(self) -> str:
        """The word for a person whom the house serves."""
        return str(self.words["user"])

    def pool(self, spec: str) -> list[str]:
        """Return the house's words for a slot such as `goods` or `paper`."""
        return list(self.words[spec])

    def reply_style(self, rng: random.Random) -> Style:
        """Return a style for a reply: the house's own in half of the cases, else a drawn one.

        The currency is always that of the house.
        """
        return self.style if rng.random() < 0.5 else Style.draw(rng, self.style.currency)


def random_house(rng: random.Random) -> House:
    """Draw a fictional company or office: its domain's words, its name and its style of values."""
    words = rng.choice(list(data("domains").values()))
    names = data("names")
    texts = {"place": rng.choice(names["place"]), "family": rng.choice(names["family"])}
    return House(words, fill(rng.choice(words["name"]), texts), Style.draw(rng))


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Return the YAML entries of all kinds of facts by name, such as `opening hours`."""
    return {**data("policies"), **data("frames")}


def kinds_for(house: House) -> list[str]:
    """Return the names of the kinds of facts that share a tag with the house, or fit all houses."""
    tags = {*house.words["tags"], "all"}
    return [name for name, kind in kinds().items() if tags & set(kind["where"])]


@dataclass(frozen=True)
class Reply:
    """A reply about one fact, with the question that it answers."""

    question: str
    text: str


@dataclass
class PolicyFact:
    """One fact: its kind, its values by slot, and whether it is so (`holds`) or not."""

    kind: str
    house: House
    values: dict[str, FactValue]
    holds: bool = True
    near: list[FactValue] = field(default_factory=list)
    tail: str = ""  # a remark that the policy adds to the fact

    @property
    def spec(self) -> dict[str, Any]:
        """The kind's entry in the YAML files."""
        return kinds()[self.kind]

    @property
    def subject(self) -> tuple[str, str]:
        """The kind and value of the fact's subject; facts with the same subject would collide."""
        slot = self.spec.get("subject")
        if slot in ("act", "offer"):
            return slot, str(self.values[slot].raw)
        return self.kind, str(self.values[slot].raw) if slot else ""

    @property
    def topic(self) -> str:
        """A noun phrase for the subject of the fact."""
        slot = self.spec.get("subject")
        subject = str(self.values[slot].raw) if slot else ""
        if slot == "act":
            return gerund(subject)
        if slot == "offer":
            return subject
        link = {"good": " for ", "grp": " for ", "plan": " of ", "d": " on "}.get(slot or "")
        return f"the {self.kind}{link}{subject}" if link else f"the {self.kind}"

    def policy(self, rng: random.Random) -> str:
        """Return the fact, or its negation if `holds` is False, as a sentence of the policy.

        A remark (`tail`) that the policy adds precedes the full stop.
        """
        forms = self.spec["policy" if self.holds else "policy_no"]
        text = self._write(rng.choice(forms), self.values, self.house.style, rng)
        return with_tail(text, self.tail) if self.tail else text

    def question(self, rng: random.Random, form: str = "") -> str:
        """Return a question that a reply made from the template `form` answers ("" for any).

        It names the fact's subject, if some question for the form does.
        """
        asks = self._questions(form) or self._questions("")
        return self._write(rng.choice(asks), self.values, self.house.reply_style(rng), rng)

    def _questions(self, form: str) -> list[str]:
        """Return the templates of questions that fit a reply's template `form`, or all for "".

        Those that name the subject are preferred. An entry `ask@slot` fits forms with that
        slot.
        """
        slot = self.spec.get("subject")
        asks = [each.partition("@") for each in self.spec["ask"]]
        fitting = [
            ask for ask, _, about in asks if not form or not about or about in slots_of(form)
        ]
        return [each for each in fitting if not slot or slot in slots_of(each)] or fitting

    def right_reply(self, rng: random.Random) -> Reply:
        """Return a reply that agrees with the fact, with its question.

        It is a drawn case of a person, an amount beside the fact's limit, or the statement
        of the fact.
        """
        return self._case(True, rng) or self._limit(True, rng) or self._statement(self.holds, rng)

    def wrong_reply(self, rng: random.Random) -> Reply:
        """Return a reply that contradicts the fact, with its question.

        It is a wrong answer to a case or an amount, the fact negated, a listed wrong
        statement, or the fact with another value.
        """
        special = self._case(False, rng) or self._limit(False, rng)
        if special:
            return special
        if self.spec.get("negatable") and (
            not self.holds or rng.random() < 0.6 or len(self.values) == 1
        ):
            return self._statement(not self.holds, rng)
        listed = self.spec.get("wrong")
        if listed and (self.spec.get("listed") or rng.random() < 0.6):
            return self._reply(rng.choice(listed), self.values, rng)
        changed = self._reply_with_change(rng)
        if changed is not None:
            return changed
        if listed:
            return self._reply(rng.choice(listed), self.values, rng)
        return self._statement(not self.holds, rng)

    def _reply(self, form: str, values: dict[str, FactValue], rng: random.Random) -> Reply:
        """Fill the template `form` with the values, and return it with a fitting question."""
        style = self.house.reply_style(rng)
        return Reply(self.question(rng, form), self._write(form, values, style, rng))

    def reply_about(self, subject: str, rng: random.Random) -> Reply:
        """Return a reply that states the fact about another subject, not in the text."""
        slot = self.spec["subject"]
        values = {**self.values, slot: FactValue(self.values[slot].unit, subject)}
        return PolicyFact(self.kind, self.house, values, self.holds)._statement(self.holds, rng)

    def _statement(self, holds: bool, rng: random.Random) -> Reply:
        """Return a reply that states the fact, or its negation if `holds` is False."""
        return self._reply(
            rng.choice(self.spec["reply" if holds else "reply_no"]), self.values, rng
        )

    def _reply_with_change(self, rng: random.Random) -> Reply | None:
        """Return a reply with one value replaced; None if no value can be."""
        for _ in range(8):
            form = rng.choice(self.spec["reply"])
            slots = [slot for slot in slots_of(form) if self._is_changeable(slot)]
            if not slots:
                continue
            slot = rng.choice(sorted(slots))
            new = self._other_value(slot, rng)
            if new is None:
                continue
            return self._reply(form, {**self.values, slot: new}, rng)
        return None

    def _is_changeable(self, slot: str) -> bool:
        """Return whether a slot has a value, and is neither the subject nor fixed."""
        fixed = [self.spec.get("subject"), *self.spec.get("fixed", [])]
        return slot in self.values and slot not in fixed

    def _other_value(self, slot: str, rng: random.Random) -> FactValue | None:
        """Return a different value for a slot: a word of the house, or an amount or word.

        Amounts come from the same text, the slot's own choices or similar numbers; None if
        there are none.
        """
        spec = self.spec["slots"][slot]
        if spec in POOLS:
            others = [word for word in self.house.pool(spec) if word != self.values[slot].raw]
            return FactValue(POOLS[spec], rng.choice(others))
        near = [*self.near, *(each for name, each in self.values.items() if name != slot)]
        return other_value(self.values[slot], spec, near, rng)

    def _limit(self, right: bool, rng: random.Random) -> Reply | None:
        """Return a right or wrong reply about an amount below or above the fact's limit.

        It comes with its question. None in 60 % of the cases, without a limit, for a fact
        that does not hold, or if no amount is below it.
        """
        if "limit" not in self.spec or not self.holds or rng.random() < 0.6:
            return None
        limit = self.values[self.spec["limit"]]
        less_forms = self.spec.get("within") or self.spec.get("below", [])
        more_forms = self.spec["beyond"]
        is_lower = rng.random() < 0.5
        amount = _amount_below(limit, rng) if is_lower else _amount_above(limit, rng)
        if amount is None:
            return None
        form = rng.choice(less_forms if is_lower == right else more_forms)
        values = {**self.values, "m": amount}
        style = self.house.reply_style(rng)
        # Return to this state below, so that question and reply write the amount in the same words.
        state = rng.getstate()
        ask = self._write(rng.choice(self.spec["ask_limit"]), values, style, rng)
        rng.setstate(state)
        return Reply(ask, self._write(form, values, style, rng))

    def _case(self, right: bool, rng: random.Random) -> Reply | None:
        """Return a right or wrong reply to a person who meets or lacks a condition.

        It comes with its question. None in half of the cases, and if the kind has no such
        cases.
        """
        if "case" not in self.spec or rng.random() < 0.5:
            return None
        ask, correct, false = rng.choice(self.spec["case"])
        style = self.house.reply_style(rng)
        texts = [
            self._write(form, self.values, style, rng)
            for form in (ask, correct if right else false)
        ]
        return Reply(*texts)

    def _write(
        self, template: str, values: dict[str, FactValue], style: Style, rng: random.Random
    ) -> str:
        """Fill a template with the values in one style and with the house's words for its users."""
        texts = {slot: write(value, style, rng) for slot, value in values.items()}
        texts |= {"user": self.house.user, "users": plural(self.house.user)}
        if "act" in texts:
            texts["acting"] = gerund(texts["act"])
        return fill(choose_words(template, rng), texts)


def with_tail(text: str, tail: str) -> str:
    """Return a sentence with the text `tail` before its full stop or exclamation mark."""
    text = text.rstrip()
    stop = text[-1] if text[-1] in ".!" else "."
    return (text if text.endswith(".m.") else text.rstrip(".!")) + tail + stop


def _amount_below(limit: FactValue, rng: random.Random) -> FactValue | None:
    """Return a whole amount from 30 % of a limit up to below it; None if there is none.

    From 20 on amounts are multiples of 5.
    """
    step = 1 if limit.number < 20 else 5
    amounts = [
        number
        for number in range(1, int(limit.number))
        if number % step == 0 and number > limit.number * 0.3
    ]
    return FactValue(limit.unit, float(rng.choice(amounts))) if amounts else None


def _amount_above(limit: FactValue, rng: random.Random) -> FactValue:
    """Return an amount that is one to six steps above a limit; a step is 1 below 20, else 5."""
    step = 1 if limit.number < 20 else 5
    return FactValue(limit.unit, limit.number + step * rng.randint(1, 6))


def draw_fact(kind: str, house: House, rng: random.Random) -> PolicyFact:
    """Draw a fact of this kind, with values for its slots that differ from each other.

    In half of the cases a fact that can be negated does not hold. Raises AssertionError for a
    slot without values.
    """
    spec = kinds()[kind]
    values: dict[str, FactValue] = {}
    for slot, slot_spec in spec["slots"].items():
        for _ in range(50):
            if slot_spec in POOLS:
                value: FactValue | None = FactValue(
                    POOLS[slot_spec], rng.choice(house.pool(slot_spec))
                )
            else:
                value = parse_slot(slot_spec, rng)
            if value is not None and all(
                value.unit != other.unit or is_different(value, other) for other in values.values()
            ):
                break
        assert value is not None, f"{kind}: the slot {slot} has no values"
        values[slot] = value
    holds = not (spec.get("negatable") and rng.random() < 0.5)
    return PolicyFact(kind, house, values, holds)


def draw_facts(house: House, count: int, rng: random.Random) -> list[PolicyFact]:
    """Draw up to `count` facts that neither repeat nor contradict each other.

    Some have the kind of the one before and another subject, and 15 % get a remark (`tail`).
    Each gets the others' values as `near`.
    """
    facts: list[PolicyFact] = []
    fitting = kinds_for(house)
    for _ in range(count * 20):
        if len(facts) >= count:
            break
        repeat = facts and rng.random() < 0.3 and facts[-1].spec.get("subject")
        fact = draw_fact(facts[-1].kind if repeat else rng.choice(fitting), house, rng)
        if fits(fact, facts):
            facts.append(fact)
    link(facts)
    for fact in facts:
        if rng.random() < 0.15:
            fact.tail = rng.choice(data("names")["added_tail"])
    return facts


def fits(fact: PolicyFact, facts: Iterable[PolicyFact]) -> bool:
    """Return whether a fact neither repeats nor contradicts the others in `facts`.

    False for the same subject, for kinds that may clash (opening hours and closed day), and for
    the same act or offer.
    """
    for other in facts:
        if fact.subject == other.subject:
            return False
        if any({fact.kind, other.kind} <= clash for clash in CLASHES):
            return False
        words = {str(v.raw) for v in fact.values.values() if v.unit in ("act", "offer")}
        if words & {str(v.raw) for v in other.values.values() if v.unit in ("act", "offer")}:
            return False
    return True


def link(facts: Sequence[PolicyFact]) -> None:
    """Set each fact's `near` in place to the values of the others, which wrong replies use."""
    for fact in facts:
        fact.near = [
            value for other in facts if other is not fact for value in other.values.values()
        ]
