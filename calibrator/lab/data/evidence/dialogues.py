"""Dialogues, messages and meeting notes, claims about them, and extractions as JSON.

A correction counts: the value before the correction is a wrong one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from calibrator.lab.data.evidence.passages import NAMES
from calibrator.lab.data.evidence.words.templates import capital, data, fill
from calibrator.lab.data.evidence.words.values import (
    MONTHS,
    FactValue,
    Style,
    is_different,
    parse_slot,
    write,
)

Row = dict[str, str]
Json = dict[str, str | int | None]
FORMS = ("table booking", "flight", "order", "appointment", "fault report", "move")


@dataclass
class Talk:
    """A talk about some values: the final ones, the corrected ones, and the fields never named."""

    form: dict[str, Any]
    values: dict[str, FactValue]
    corrected: dict[str, FactValue]
    absent: list[str]
    style: Style
    lines: list[tuple[str, str]] = field(default_factory=list)

    def text(self, value: FactValue, rng: random.Random) -> str:
        """Write a value in the style of the conversation."""
        return write(value, self.style, rng)


def draw(spec: str, others: list[FactValue], rng: random.Random) -> FactValue:
    """Draw a value from a slot's text, such as `person`, `year 1900 1950` or `days 7 14`.

    It differs from those in `others` with its unit, if one of 60 draws does. Raises
    AssertionError for a slot without values.
    """
    unit, *rest = spec.split()
    for _ in range(60):
        if unit == "person":
            words = data("names")
            value = FactValue(unit, f"{rng.choice(words['given'])} {rng.choice(words['family'])}")
        elif unit in (*NAMES, "family"):
            value = FactValue(unit, rng.choice(data("names")[unit]))
        elif unit == "year":
            value = FactValue(unit, str(rng.randint(int(rest[0]), int(rest[1]))))
        else:
            drawn = parse_slot(spec, rng)
            assert drawn is not None, f"the slot {spec!r} has no values"
            value = drawn
        if all(value.unit != each.unit or is_different(value, each) for each in others):
            break
    return value


def random_talk(rng: random.Random) -> Talk:
    """Draw a conversation: a form such as `flight`, values for three or more of its fields.

    35 % of the values also have an earlier, wrong one that is corrected. At least one field is
    never named (`absent`).
    """
    form = data("dialogues")[rng.choice(FORMS)]
    slots = list(form["slots"])
    rng.shuffle(slots)
    named = slots[: rng.randint(3, len(slots) - 1)]
    values: dict[str, FactValue] = {}
    corrected: dict[str, FactValue] = {}
    for slot in named:
        values[slot] = draw(form["slots"][slot]["unit"], list(values.values()), rng)
        if rng.random() < 0.35:
            known = [*values.values(), *corrected.values()]
            corrected[slot] = draw(form["slots"][slot]["unit"], known, rng)
    return Talk(form, values, corrected, slots[len(named) :], Style.draw(rng))


def dialogue_text(talk: Talk, rng: random.Random) -> str:
    """Return the conversation as a dialogue, a line each, such as `Guest: It is for two.`.

    A host asks for each value. A wrong value is corrected right after, or at the end.
    """
    host, guest = talk.form["roles"]
    acks = data("dialogues")["acks"]
    lines = [(guest, rng.choice(talk.form["open"]))]
    late: list[str] = []
    for slot, value in talk.values.items():
        spec = talk.form["slots"][slot]
        lines.append((host, spec["ask"]))
        old = talk.corrected.get(slot)
        lines.append((guest, _say(talk, rng.choice(spec["say"]), old or value, rng)))
        if old is None:
            continue
        if rng.random() < 0.5:
            lines += [
                (host, rng.choice(acks)),
                (guest, _correction(talk, slot, "corrections", rng)),
            ]
        else:
            late.append(_correction(talk, slot, "late", rng))
    for text in late:
        lines += [(guest, text), (host, rng.choice(acks))]
    lines.append(
        (host, rng.choice(("Is that all?", "Thank you, goodbye.", "You will get a message.")))
    )
    mark = rng.choice(("{0}: {1}", "{0}: {1}", "[{0}] {1}", "- {0}: {1}", "{0} > {1}"))
    return "\n".join(mark.format(*line) for line in lines)


def mail_text(talk: Talk, rng: random.Random) -> str:
    """Return the conversation as a mail with one value after the other; corrections follow."""
    words = data("names")
    parts = [rng.choice(talk.form["open"])]
    late: list[str] = []
    for slot, value in talk.values.items():
        old = talk.corrected.get(slot)
        label = capital(talk.form["slots"][slot]["label"])
        parts.append(_say(talk, f"{label}: $v.", old or value, rng))
        if old is not None:
            late.append(_correction(talk, slot, "late", rng))
    name = rng.choice(words["given"])
    body = (" " if rng.random() < 0.6 else "\n").join(parts)
    return "\n".join(["Hello,", "", body, *late, "", f"Best wishes\n{name}"])


def _say(talk: Talk, form: str, value: FactValue, rng: random.Random, **texts: str) -> str:
    """Fill a template with the value as `$v` and with further `texts`."""
    return fill(form, {"v": talk.text(value, rng), **texts})


def _correction(talk: Talk, slot: str, kind: str, rng: random.Random) -> str:
    """Return a sentence that replaces the slot's old value by the final one.

    `kind` is the list of templates: `corrections` just after the old value, or `late` at the
    end.
    """
    old = talk.text(talk.corrected[slot], rng)
    label = talk.form["slots"][slot]["label"]
    form = rng.choice(data("dialogues")[kind])
    return _say(talk, form, talk.values[slot], rng, o=old, label=label)


# --- claims and extractions -----------------------------------------------------------------------


def false_value(talk: Talk, slot: str, rng: random.Random) -> FactValue:
    """Draw a wrong final value of a slot: one before a correction, another slot's, or a new one."""
    if slot in talk.corrected and rng.random() < 0.7:
        return talk.corrected[slot]
    value = talk.values[slot]
    others = [
        each for name, each in talk.values.items() if each.unit == value.unit and name != slot
    ]
    if others and rng.random() < 0.6:
        return rng.choice(others)
    return draw(talk.form["slots"][slot]["unit"], [value], rng)


def claim(talk: Talk, slot: str, value: FactValue, rng: random.Random) -> tuple[str, str]:
    """Return a question about a slot, and a reply that it has this value or the value alone."""
    spec = talk.form["slots"][slot]
    question = f"What is {spec['label']}?"
    style = talk.style if rng.random() < 0.6 else Style.draw(rng, talk.style.currency)
    text = write(value, style, rng)
    if rng.random() < 0.25:
        return question, rng.choice(
            (text, f"It is {text}.", capital(f"{spec['label']} is {text}."))
        )
    return question, fill(rng.choice(spec["claim"]), {"v": text})


def extraction(talk: Talk, label: str, rng: random.Random) -> tuple[str, str]:
    """Return a request for some fields as JSON, and a reply with such an object.

    The object fits the label: right values (`entail`; a field never named may be null), one
    wrong or null (`contradict`), or a value for a field never named (`neutral`).
    """
    slots = list(talk.values)
    rng.shuffle(slots)
    chosen = slots[: rng.randint(1, len(slots))]
    values = {slot: talk.values[slot] for slot in chosen}
    found: Json = {}
    changed = rng.choice(chosen)
    if label == "contradict" and rng.random() < 0.85:
        values[changed] = false_value(talk, changed, rng)
    for slot, value in values.items():
        found[slot] = _json_value(talk, value, rng)
    if label == "contradict" and values[changed] == talk.values[changed]:
        found[changed] = None
    if label == "entail" and rng.random() < 0.3:
        found[rng.choice(talk.absent)] = None
    if label == "neutral":
        extra = rng.choice(talk.absent)
        unit = talk.form["slots"][extra]["unit"]
        found[extra] = _json_value(talk, draw(unit, list(talk.values.values()), rng), rng)
    items = list(found.items())
    rng.shuffle(items)
    names = ", ".join(name for name, _ in items)
    question = rng.choice(
        (
            f"Extract {names} as JSON.",
            f"Return a JSON object with the fields {names}.",
            f"Fill in: {names}. Answer in JSON only.",
        )
    )
    text = json.dumps(dict(items), ensure_ascii=False, indent=rng.choice((None, None, 1, 2)))
    return question, f"```json\n{text}\n```" if rng.random() < 0.15 else text


def _json_value(talk: Talk, value: FactValue, rng: random.Random) -> str | int:
    """Return a value for JSON: an integer for a number, the word itself, or its text."""
    if value.unit == "number":
        return int(value.number)
    if value.unit == "word":
        return str(value.raw)
    return talk.text(value, rng)


def rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Yield the nine rows about one conversation, three of each label; in 20 % about meeting notes.

    All share `premise` and `group`; `question` is empty in 30 % of the rows clear without it.
    """
    if rng.random() < 0.2:
        yield from _notes_rows(rng, group)
        return
    talk = random_talk(rng)
    premise = (dialogue_text if rng.random() < 0.75 else mail_text)(talk, rng)
    for label in ("entail", "contradict", "neutral"):
        for number in range(3):
            if number == 0 or rng.random() < 0.3:
                question, text = extraction(talk, label, rng)
            else:
                question, text = _make_claim(talk, label, rng)
            short = len(text.split()) < 4 or text.startswith(("{", "`", "It is")) or "tell" in text
            yield {
                "kind": "dialogues",
                "group": group,
                "premise": premise,
                "question": question if short or rng.random() < 0.7 else "",
                "hypothesis": text,
                "label": label,
            }


def _make_claim(talk: Talk, label: str, rng: random.Random) -> tuple[str, str]:
    """Return (question, reply) about one value of the conversation, with the given label.

    `neutral` claims a value for a field never named. 12 % of the others say that it was not
    told, which is right for such a field and wrong for a named one.
    """
    slot = rng.choice(list(talk.values))
    corrected = list(talk.corrected)
    if corrected and rng.random() < 0.5:
        slot = rng.choice(corrected)
    if rng.random() < 0.12 and label != "neutral":
        unnamed = rng.choice(talk.absent) if label == "entail" else slot
        question = f"What is {talk.form['slots'][unnamed]['label']}?"
        return question, rng.choice(
            ("They did not tell.", "I can't tell, it was not said.", "I can't tell from this text.")
        )
    if label == "entail":
        return claim(talk, slot, talk.values[slot], rng)
    if label == "contradict":
        return claim(talk, slot, false_value(talk, slot, rng), rng)
    absent = rng.choice(talk.absent)
    unit = talk.form["slots"][absent]["unit"]
    return claim(talk, absent, draw(unit, list(talk.values.values()), rng), rng)


# --- meeting notes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeetingTask:
    """A task of a meeting: its owner, the work and the date."""

    owner: str
    what: str
    until: str

    def sentence(self, rng: random.Random) -> str:
        """Return the task as a sentence, such as `Ann will call the bank by 3 May.`."""
        form = rng.choice(
            (
                "{o} will {w} by {u}.",
                "{o} has to {w} until {u}.",
                "It is the task of {o} to {w} by {u}.",
                "By {u}, {o} will {w}.",
            )
        )
        return capital(form.format(o=self.owner, w=self.what, u=self.until))


def _notes_rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Yield nine rows about drawn meeting notes, three of each label.

    Claims are about tasks or decisions; all share `premise` and `group`.
    """
    spec = data("dialogues")["notes"]
    people = rng.sample(data("names")["given"], 5)
    whats = rng.sample(spec["tasks"], 6)
    dates = rng.sample([f"{day} {month}" for day in range(1, 29) for month in MONTHS], 6)
    tasks = [
        MeetingTask(rng.choice(people[:4]), what, until)
        for what, until in zip(whats, dates, strict=True)
    ]
    listed, hidden = tasks[: rng.randint(2, 4)], tasks[4:]
    proposals = rng.sample(spec["proposals"], 3)
    accepted = {proposal: rng.random() < 0.5 for proposal in proposals}
    premise = _notes_text(listed, proposals[:2], accepted, people, rng)
    for label in ("entail", "contradict", "neutral"):
        for _ in range(3):
            text = (
                _task_claim(listed, hidden, label, rng)
                if rng.random() < 0.65
                else _decision(proposals, accepted, label, rng)
            )
            question = rng.choice(
                ("What was decided?", "Who does what?", "Summarise the meeting.", "")
            )
            yield {
                "kind": "dialogues",
                "group": group,
                "premise": premise,
                "question": question,
                "hypothesis": text,
                "label": label,
            }


def _notes_text(
    tasks: list[MeetingTask],
    proposals: list[str],
    accepted: dict[str, bool],
    people: list[str],
    rng: random.Random,
) -> str:
    """Return meeting notes as a list: who was present, each proposal's outcome, and the tasks.

    `accepted` says of each proposal whether it was accepted. Half of the notes are shuffled.
    """
    reasons = data("dialogues")["notes"]["reasons"]
    lines = [f"Present: {', '.join(people)}"]
    for proposal in proposals:
        verdict = "agreed" if accepted[proposal] else rng.choice(("rejected", "turned down"))
        lines.append(f"Proposal to {proposal}: {verdict}, because {rng.choice(reasons)}.")
    form = rng.choice(
        ("{o}: {w} (until {u})", "{w} - {o}, due {u}", "{o} takes over: {w}. Deadline {u}.")
    )
    lines += [form.format(o=task.owner, w=task.what, u=task.until) for task in tasks]
    if rng.random() < 0.5:
        rng.shuffle(lines)
    return "Meeting notes\n" + "\n".join(f"- {line}" for line in lines)


def _task_claim(
    listed: list[MeetingTask], hidden: list[MeetingTask], label: str, rng: random.Random
) -> str:
    """Return a sentence about a listed task, an unlisted one (`neutral`), or a changed one.

    For `contradict` a listed task's owner or date is replaced by another task's.
    """
    task = rng.choice(listed)
    if label == "entail":
        return task.sentence(rng)
    if label == "neutral":
        return rng.choice(hidden).sentence(rng)
    owners = [other.owner for other in (*listed, *hidden) if other.owner != task.owner]
    dates = [other.until for other in (*listed, *hidden) if other.until != task.until]
    if owners and rng.random() < 0.5:
        return MeetingTask(rng.choice(owners), task.what, task.until).sentence(rng)
    return MeetingTask(task.owner, task.what, rng.choice(dates)).sentence(rng)


def _decision(
    proposals: list[str], accepted: dict[str, bool], label: str, rng: random.Random
) -> str:
    """Return a sentence on a proposal's outcome: true, false, or of an unlisted one (`neutral`)."""
    proposal = proposals[2] if label == "neutral" else rng.choice(proposals[:2])
    positive = accepted[proposal] == (label != "contradict")
    forms = (
        ("They agreed to {p}.", "The proposal to {p} was accepted.", "They are going to {p}.")
        if positive
        else (
            "They will not {p}.",
            "The proposal to {p} was rejected.",
            "They decided against the proposal to {p}.",
        )
    )
    return rng.choice(forms).format(p=proposal)
