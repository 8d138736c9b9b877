"""Synthetic conversations with right and wrong calls, made by rule for many domains.

A scene has instructions, records, a user's request, an agent's look-ups, and the call that follows.
Its twist is the difficulty: the wrong call, or the conversation in which the right call is wrong,
differs from the right one in that respect alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from calibrator.lab.data.calls.domains import DOMAINS, Domain, WriteTool
from calibrator.lab.data.calls.plots import PLOTS, Outcome, Reply, suits_twist
from calibrator.lab.data.calls.stages import (
    CHECKS,
    DONE,
    QUESTIONS,
    SLIPS,
    SMALL_TALK,
    THOUGHTS,
    TWISTS,
    YES,
    Json,
    Scene,
    Stage,
    add_rules,
    call_message,
    drawn_value,
    fill,
    id_name_of,
    in_words,
    look_up,
    make_stage,
    request_of,
    spoken_name,
    tools_of,
)
from calibrator.scorer import ToolUse

# --- twists -------------------------------------------------------------------------------------


def scenes(count: int, seed: int, domains: tuple[Domain, ...] = DOMAINS) -> Iterator[Scene]:
    """Yield labelled replies (Scenes) of `count` synthetic conversations; equal for equal seeds.

    A conversation yields its right and its wrong calls (mostly one of each) with the group
    `seed/number`. Domains and twists take turns by the conversation's number.
    """
    for number in range(count):
        rng = random.Random(f"scene {seed} {number}")
        domain = domains[number % len(domains)]
        twist = TWISTS[number // len(domains) % len(TWISTS)]
        yield from _play_scene(domain, twist, rng, f"{seed}/{number}")


def _play_scene(domain: Domain, twist: str, rng: random.Random, group: str) -> Iterator[Scene]:
    """Build one conversation and yield its right and wrong calls, each as a labelled Scene.

    `twist` is the difficulty, such as `weekday`; it becomes `plain` if no changing tool of the
    domain suits it. Some conversations begin with small talk, and some calls have a thought as
    text.
    """
    fitting = [w for w in domain.writes if _fits(w, twist)]
    if not fitting:
        fitting, twist = list(domain.writes), "plain"
    stage = make_stage(domain, rng.choice(fitting), rng)
    fill(stage, is_weekday=twist == "weekday")
    if twist == "weekday":
        _near_days(stage)
    add_rules(stage, twist)
    if rng.random() < 0.2:
        hello, hi = rng.choice(SMALL_TALK)
        stage.say(hello)
        stage.answer(hi)
    outcomes = list(_outcomes(stage, twist))
    tools = tools_of(stage)
    for correct, reply, turns in outcomes:
        message = call_message(reply[0], reply[1])
        if rng.random() < 0.2:
            message["content"] = rng.choice(THOUGHTS)
        system = {"role": "system", "content": " ".join(stage.rules)}
        yield Scene(ToolUse([system, *turns], tools, message), correct, domain.name, twist, group)


def _fits(write: WriteTool, twist: str) -> bool:
    """Return whether a changing tool has what the twist needs, such as a date for `weekday`.

    `state` and `late` need the rule of that name, `limit` a largest number, `above` a parameter
    that is capped by a field of the record; the rest is decided by `suits_twist`.
    """
    if twist in ("state", "late"):
        return getattr(write, twist) is not None
    if twist == "limit":
        return write.most is not None
    if twist == "above":
        return any(source.startswith("most") for source in write.takes.values())
    if twist == "weekday":
        return any("date" in source for source in write.takes.values())
    return suits_twist(write, twist)


def _outcomes(stage: Stage, twist: str) -> Iterator[Outcome]:
    """Yield a scene's right and wrong calls as (1 or 0, (tool's name, arguments), turns before).

    The turns are copies. `stage.turns` grows by the user's request, the look-ups and, for some
    twists, a correction or a finished first change. For `confirm` and `again` the wrong reply
    is the right call at another point: without the user's yes, or after it was made already.
    """
    rng, right = stage.rng, (stage.write.name, stage.values)
    if twist in ("state", "late"):
        yield from _record_outcomes(stage, twist, right)
        return
    if twist in PLOTS:
        yield from PLOTS[twist](stage)
        return
    if twist == "question":
        yield from _question_outcomes(stage)
        return
    if twist == "first look":
        yield from _first_outcomes(stage)
        return
    if twist == "extreme" and (request := _request_extreme(stage)):
        stage.say(request)
    elif twist == "correction":
        other = _sibling(stage)
        stage.say(request_of(stage, other))
        if rng.random() < 0.5:
            look_up(stage, is_long=False)
            stage.answer("I have found it. One moment.")
        stage.say(rng.choice(SLIPS).format(who=stage.name_record(stage.record)))
    elif twist == "second":
        other = _sibling(stage)
        stage.say(f"{request_of(stage, other)} And then: {request_of(stage)}")
    else:
        stage.say(request_of(stage))
    look_up(stage)
    if twist == "second":
        values = {**stage.values, id_name_of(stage): _sibling(stage)["id"]}
        stage.call(stage.write.name, values, rng.choice(DONE))
    if twist == "confirm":
        check = rng.choice(CHECKS)
        question = check.format(
            tool=spoken_name(stage.write.name), who=stage.name_record(stage.record)
        )
        checked = [
            {"role": "assistant", "content": question},
            {"role": "user", "content": rng.choice(YES)},
        ]
        yield 0, right, list(stage.turns)
        yield 1, right, [*stage.turns, *checked]
        return
    yield 1, right, list(stage.turns)
    if twist == "again":
        stage.call(*right, rng.choice(DONE))
        yield 0, right, list(stage.turns)
        return
    yield 0, _faulty_call(stage, twist, right), list(stage.turns)


def _sibling(stage: Stage) -> Json:
    """Return another record, always the same one in a scene."""
    return stage.records[(stage.target + 1) % len(stage.records)]


def _faulty_call(stage: Stage, twist: str, right: Reply) -> Reply:
    """Return the wrong (tool's name, arguments) for a twist: `right` with one thing changed.

    `limit` raises a number beyond the tool's limit, `above` one beyond the record's field,
    `weekday` moves a date by one to three days, `plain` changes tool, value or record; all
    others, also where these do not fit, take another record's id.
    """
    rng, (name, values) = stage.rng, right
    wrong = dict(values)
    most = stage.write.most
    if twist == "limit" and most and most[0] in wrong:
        wrong[most[0]] = type(wrong[most[0]])(most[1] * rng.choice((1.2, 1.5, 3)))
        return name, wrong
    capped = [(n, s.partition(" ")[2]) for n, s in stage.write.takes.items() if "most" in s]
    if twist == "above" and capped:
        parameter, source = capped[0]
        above = stage.record[source] * rng.choice((1.3, 2.0)) + 1
        wrong[parameter] = type(wrong[parameter])(round(above, 2))
        return name, wrong
    days = [n for n, v in values.items() if isinstance(v, str) and len(v) == 10 and v[4] == "-"]
    if twist == "weekday" and days:
        day = date.fromisoformat(values[days[0]]) + timedelta(rng.choice((-3, -2, -1, 1, 2, 3)))
        wrong[days[0]] = day.isoformat()
        return name, wrong
    if twist == "plain":
        return _other_call(stage, right)
    wrong[id_name_of(stage)] = _sibling(stage)["id"]
    return name, wrong


def _other_call(stage: Stage, right: Reply) -> Reply:
    """Return a wrong (tool's name, arguments): another tool, another value, or another record's id.

    The way is drawn at random; where no other value can be drawn the id is replaced.
    """
    rng, (name, values) = stage.rng, right
    id_name = id_name_of(stage)
    changeable = [n for n in values if n != id_name]
    way = rng.randrange(3)
    if way == 0:
        other = rng.choice([w for w in stage.domain.writes if w.name != name])
        twin = Stage(stage.domain, other, rng, stage.today, stage.records, stage.target)
        fill(twin)
        return other.name, twin.values
    if way == 1 and changeable:
        parameter = rng.choice(changeable)
        kind = stage.write.takes[parameter].removeprefix("new ")
        drawn = [_drawn_alike(stage, kind, values[parameter]) for _ in range(6)]
        fresh = [each for each in drawn if each != values[parameter]]
        if fresh:
            return name, {**values, parameter: fresh[0]}
    return name, {**values, id_name: _sibling(stage)["id"]}


def _drawn_alike(stage: Stage, kind: str, value: Any) -> Any:
    """Draw a value of a kind such as `date+`, `count 1-9` or `field NAME`; it may equal `value`.

    A float is scaled by 0.5, 1.1 or 2, plus 1, instead of drawn.
    """
    word, _, rest = kind.partition(" ")
    if word in ("most", "field", "choice"):
        kind = stage.domain.fields[rest]
    return (
        drawn_value(kind, stage.today, stage.rng)
        if not isinstance(value, float)
        else round(value * stage.rng.choice((0.5, 1.1, 2)) + 1, 2)
    )


def _record_outcomes(stage: Stage, twist: str, right: Reply) -> Iterator[Outcome]:
    """Yield the same call twice: right with a record that the rules allow, else wrong.

    For the twist `state` the record's field has the required value or another one; otherwise
    its date is within the allowed days or before them. Each is (1 or 0, `right`, turns); the
    record changes in place, and `stage.turns` is restored after each.
    """
    for correct in (1, 0):
        turns = list(stage.turns)
        if twist == "state" and stage.write.state:
            name, value = stage.write.state
            others = [c for c in stage.domain.fields[name].split("|") if c != value]
            stage.record[name] = value if correct else stage.rng.choice(others)
        elif stage.write.late:
            name, days = stage.write.late
            gone = stage.rng.randrange(1, days) if correct else days + stage.rng.randrange(2, 60)
            stage.record[name] = (stage.today - timedelta(gone)).isoformat()
        stage.say(request_of(stage))
        look_up(stage)
        yield correct, right, list(stage.turns)
        stage.turns[:] = turns


def _question_outcomes(stage: Stage) -> Iterator[Outcome]:
    """Yield outcomes after a user's question about a field: a look-up is right, a change wrong.

    Outcomes are (1 or 0, (tool's name, arguments), turns before). The right look-up shows the
    record, if it was searched for before, or else searches for its name.
    """
    fields = [f for f in stage.domain.fields if f not in stage.domain.named_by]
    template = stage.rng.choice(QUESTIONS)
    stage.say(
        template.format(
            field=spoken_name(stage.rng.choice(fields)), who=stage.name_record(stage.record)
        )
    )
    if stage.rng.random() < 0.5:
        look_up(stage, is_long=False)
        yield 1, (stage.domain.show[0], {id_name_of(stage): stage.record["id"]}), list(stage.turns)
    else:
        named = str(stage.record[stage.rng.choice(stage.domain.named_by)])
        yield 1, (stage.domain.find[0], {"query": named}), list(stage.turns)
    yield 0, (stage.write.name, dict(stage.values)), list(stage.turns)


def _first_outcomes(stage: Stage) -> Iterator[Outcome]:
    """Yield outcomes just after a request: to search for the record is right.

    Wrong is a search for another record's name, or the change itself without any look-up.
    Outcomes are (1 or 0, (tool's name, arguments), turns before).
    """
    stage.say(request_of(stage))
    named = str(stage.record[stage.rng.choice(stage.domain.named_by)])
    yield 1, (stage.domain.find[0], {"query": named}), list(stage.turns)
    other = str(_sibling(stage)[stage.domain.named_by[0]])
    if stage.rng.random() < 0.4 and other not in stage.turns[-1]["content"]:
        yield 0, (stage.domain.find[0], {"query": other}), list(stage.turns)
    else:
        yield 0, (stage.write.name, dict(stage.values)), list(stage.turns)


def _request_extreme(stage: Stage) -> str:
    """Choose the record with the highest or lowest number or date, and return a request for it.

    Such as `Of all bookings take the one with the latest start: move booking, day 3 May.` Sets
    `stage.target` and draws the call's values afresh. Returns "" if the domain has no count,
    money or date field with at least three different values.
    """
    fields = [
        name
        for name, kind in stage.domain.fields.items()
        if kind.startswith(("count", "money", "date")) and len({r[name] for r in stage.records}) > 2
    ]
    if not fields:
        return ""
    name = stage.rng.choice(fields)
    is_high = stage.rng.random() < 0.5
    ordered = sorted(range(len(stage.records)), key=lambda at: stage.records[at][name])
    stage.target = ordered[-1 if is_high else 0]
    fill(stage)
    spoken = {k: v for k, v in stage.spoken.items() if k != id_name_of(stage)}
    is_day = stage.domain.fields[name].startswith("date")
    most = ("latest" if is_high else "earliest") if is_day else ("highest" if is_high else "lowest")
    values = ", ".join(f"{spoken_name(k)} {v}" for k, v in spoken.items())
    return (
        f"Of all {stage.domain.record}s take the one with the {most} {spoken_name(name)}: "
        f"{spoken_name(stage.write.name)}{', ' + values if values else ''}."
    )


def _near_days(stage: Stage) -> None:
    """Replace each date of the right call by one of the next six days, and its words by a weekday.

    Changes `stage.values` and `stage.spoken` in place, as people say `Friday` only of a near
    day.
    """
    for name, value in stage.values.items():
        if isinstance(value, str) and len(value) == 10 and value[4:5] == "-":
            day = stage.today + timedelta(stage.rng.randrange(1, 7))
            stage.values[name] = day.isoformat()
            stage.spoken[name] = in_words(day.isoformat(), stage, True)
