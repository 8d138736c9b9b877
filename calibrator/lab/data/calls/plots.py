"""Twists of scenes that need turns of their own: repeated, unsaid and partial requests.

Each function yields outcomes: whether the reply is right, the reply, and the turns before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from calibrator.lab.data.calls.domains import WriteTool
from calibrator.lab.data.calls.stages import (
    DONE,
    Json,
    Stage,
    fill,
    id_name_of,
    look_up,
    request_of,
    spoken_name,
)

Reply = tuple[str, Json]  # a tool's name and its arguments
Outcome = tuple[int, Reply, list[Json]]

_PARTS = {"half": 2, "a third": 3, "a quarter": 4, "a tenth": 10, "all": 1}
_CLASH_RULES = (
    "No two {record}s may have the same {names}.",
    "Never give one {names} to two {record}s.",
    "Each {names} is free for one {record} only.",
)
_PURSES = (
    ("money_left", "What may still be spent this month.", "money_left"),
    ("remaining_credit", "How much credit remains.", "remaining"),
    ("quota_status", "How much of the quota is free.", "available"),
    ("stock_on_hand", "How much there is.", "on_hand"),
)
_PURSE_RULES = (
    "Nothing goes beyond what {name} tells.", "Ask {name} first and stay within it.",
    "What {name} says is the limit.",
)  # fmt: skip


def again_looked(stage: Stage) -> Iterator[Outcome]:
    """Yield outcomes after a look-up: the requested change is right, the same look-up wrong.

    An outcome is (1 if right or 0, (tool's name, arguments), turns before), here and below.
    """
    stage.say(request_of(stage))
    look_up(stage)
    last = stage.turns[-2]["tool_calls"][0]["function"]
    yield 1, (stage.write.name, dict(stage.values)), list(stage.turns)
    yield 0, (last["name"], json.loads(last["arguments"])), list(stage.turns)


def play_extra_change(stage: Stage) -> Iterator[Outcome]:
    """Yield the same second change twice: right if the user requested it too, else wrong.

    Both follow the first change. Outcomes are (1 or 0, (tool's name, arguments), turns before).
    """
    other = stage.rng.choice([w for w in stage.domain.writes if w.name != stage.write.name])
    twin = Stage(stage.domain, other, stage.rng, stage.today, stage.records, stage.target)
    fill(twin)
    before = list(stage.turns)
    for correct in (1, 0):
        stage.turns[:] = before
        both = f"{request_of(stage)} Also: {request_of(twin)}"
        stage.say(both if correct else request_of(stage))
        look_up(stage)
        stage.call(stage.write.name, dict(stage.values), stage.rng.choice(DONE))
        yield correct, (other.name, dict(twin.values)), list(stage.turns)


def play_unsaid_value(stage: Stage) -> Iterator[Outcome]:
    """Yield the same call twice: right if the user gave its values, wrong if he gave none.

    Outcomes are (1 or 0, (tool's name, arguments), turns before); a look-up precedes both.
    """
    values = [f"{spoken_name(n)}: {v}" for n, v in stage.spoken.items() if n != id_name_of(stage)]
    does = stage.write.does.rstrip(".")
    request = f"{does[:1].lower()}{does[1:]}, for {stage.name_record(stage.record)}."
    before = list(stage.turns)
    for correct in (1, 0):
        stage.turns[:] = before
        stage.say(f"Please {request} {'; '.join(values) if correct else ''}".strip())
        look_up(stage)
        yield correct, (stage.write.name, dict(stage.values)), list(stage.turns)


def play_transposed_id(stage: Stage) -> Iterator[Outcome]:
    """Yield the right call, and a wrong one whose id has two adjacent characters swapped.

    Outcomes are (1 or 0, (tool's name, arguments), turns before), with the same turns.
    """
    stage.say(request_of(stage))
    look_up(stage)
    yield 1, (stage.write.name, dict(stage.values)), list(stage.turns)
    name = id_name_of(stage)
    own = stage.values[name]
    places = [
        at for at in range(len(own) - 1) if own[at] != own[at + 1] and own[at : at + 2].isalnum()
    ]
    at = stage.rng.choice(places)
    wrong = own[:at] + own[at + 1] + own[at] + own[at + 2 :]
    yield 0, (stage.write.name, {**stage.values, name: wrong}), list(stage.turns)


def part(stage: Stage) -> Iterator[Outcome]:
    """Yield a call with the requested share of a record's number, and one with a wrong share.

    The user asks for, say, `a quarter of the deposit`; the record's number is drawn anew, in
    place. Outcomes are (1 or 0, (tool's name, arguments), turns before).
    """
    ((name, source),) = [
        (n, s.partition(" ")[2]) for n, s in stage.write.takes.items() if s.startswith("most")
    ]
    is_whole = stage.domain.fields[source].startswith("count")
    stage.record[source] = (
        stage.rng.randrange(1, 9) * 60 if is_whole else (stage.rng.randrange(3, 40) * 6.0)
    )
    words = [word for word in _PARTS if word != "all" or stage.rng.random() < 0.3]
    word, other = stage.rng.sample(words if len(words) > 1 else list(_PARTS), 2)
    stage.spoken[name] = f"{word} of the {spoken_name(source)}"
    stage.say(request_of(stage))
    look_up(stage)
    for correct, chosen in ((1, word), (0, other)):
        amount = round(stage.record[source] / _PARTS[chosen], None if is_whole else 2)
        values = {**stage.values, name: amount}
        yield correct, (stage.write.name, values), list(stage.turns)


def clash(stage: Stage) -> Iterator[Outcome]:
    """Yield the same call twice: right for a free date (and time), wrong if another record has it.

    A rule that forbids such a clash is added; for the wrong one another record is changed in
    place. Outcomes are (1 or 0, (tool's name, arguments), turns before).
    """
    names = [n for n, s in stage.write.takes.items() if s in ("new date+", "new time")]
    rule = stage.rng.choice(_CLASH_RULES)
    spoken = " and ".join(map(spoken_name, names))
    stage.rules.insert(1, rule.format(record=stage.domain.record, names=spoken))
    before = list(stage.turns)
    other = stage.records[(stage.target + 1) % len(stage.records)]
    for correct in (1, 0):
        stage.turns[:] = before
        if not correct:
            other.update({name: stage.values[name] for name in names})
        stage.say(request_of(stage))
        look_up(stage, is_wide=True)
        yield correct, (stage.write.name, dict(stage.values)), list(stage.turns)


def purse(stage: Stage) -> Iterator[Outcome]:
    """Yield the same call twice: right within the balance that a look-up returned, wrong beyond it.

    A rule and a tool that shows the balance, such as `remaining_credit`, are added to the
    scene. Outcomes are (1 or 0, (tool's name, arguments), turns before).
    """
    name = next(n for n, v in stage.values.items() if isinstance(v, int | float))
    price = float(stage.values[name]) or 1.0
    tool, does, key = stage.rng.choice(_PURSES)
    stage.rules.insert(1, stage.rng.choice(_PURSE_RULES).format(name=spoken_name(tool)))
    stage.others.append((tool, does))
    before = list(stage.turns)
    for correct, factor in ((1, stage.rng.uniform(1.1, 4)), (0, stage.rng.uniform(0.2, 0.9))):
        stage.turns[:] = before
        stage.say(request_of(stage))
        look_up(stage)
        amount = round(price * factor, 1)
        balance = (
            json.dumps({key: amount})
            if stage.rng.random() < 0.6
            else f"{spoken_name(key)}: {amount}"
        )
        stage.call(tool, {}, balance)
        yield correct, (stage.write.name, dict(stage.values)), list(stage.turns)


PLOTS: dict[str, Callable[[Stage], Iterator[Outcome]]] = {
    "look again": again_looked,
    "extra": play_extra_change,
    "unsaid": play_unsaid_value,
    "transposed": play_transposed_id,
    "part": part,
    "clash": clash,
    "purse": purse,
}


def suits_twist(write: WriteTool, twist: str) -> bool:
    """Return whether a changing tool takes the parameters that a twist of `PLOTS` needs.

    `part` needs one number capped by a field, and no free number; `clash` a new date; `purse` a
    number; `unsaid` a new value. True for all other twists.
    """
    sources = list(write.takes.values())
    if twist == "part":
        return sum(source.startswith("most") for source in sources) == 1 and not any(
            re.match(r"new (?:count|money)", source) for source in sources
        )
    if twist == "clash":
        return "new date+" in sources
    if twist == "purse":
        return any(re.match(r"most|new (?:count|money)", source) for source in sources)
    if twist == "unsaid":
        return any(source.startswith("new") for source in sources)
    return True
