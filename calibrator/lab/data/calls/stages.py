"""A scene under construction: its records, its request in words, its tools, look-ups and rules."""

from __future__ import annotations

import json
import random
import string
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from calibrator.lab.data.calls.domains import DOMAINS, Domain, WriteTool
from calibrator.scorer import ToolUse

Json = dict[str, Any]

REMARKS = (
    "reported by phone", "agreed with the owner", "see letter of last week", "checked twice",
    "no reply for a month", "as discussed on site", "wet paper, unreadable", "handled by Ilse",
)  # fmt: skip
SMALL_TALK = (
    ("Good morning!", "Good morning. What can I do for you?"),
    ("Are you there?", "Yes, go on."),
    ("I have a few things for you today.", "All right, what is the first?"),
)
THOUGHTS = (
    "I have what I need now.", "The record is clear, so I make the change.", "Next step.",
    "This is the one that was meant.", "Doing it now.",
)  # fmt: skip
_TODAY = (
    "Today's date: {weekday}, {iso}.",
    "The current date is {iso}.",
    "It is now {weekday}, {day} {month} {year}; today in figures: {iso}.",
)
_STATE_RULES = (
    "Only a {record} whose {field} is {value} may be changed with {tool}.",
    "{tool} is for {record}s that are {value}; with any other {field} it is not allowed.",
    "Do not {tool} unless the {field} of the {record} is {value}.",
)
_LATE_RULES = (
    "{tool} only within {days} days of {field}.",
    "A {record} whose {field} lies more than {days} days back must not be taken for {tool}.",
    "After {days} days from {field}, {tool} is no longer possible.",
)
_MOST_RULES = (
    "The {name} in {tool} must not be above {limit}.",
    "With {tool}, {limit} is the maximum for {name}.",
    "Never {tool} with {name} over {limit}.",
)
_CONFIRM_RULES = (
    "Before you change a record, tell the user what you will do and wait for a yes.",
    "Every change needs the explicit confirmation of the user first.",
    "Ask for approval before any action that changes data.",
)
_MANNERS = (
    "Be brief and polite.", "Answer in the language of the user.", "Never mention other customers.",
    "If something is unclear, ask.", "Do not give advice on law or money.",
    "Look a record up before you change it.", "Sign with the name of the house.",
)  # fmt: skip
CHECKS = ("I will {tool} for {who}. Is that right?", "To be sure: {tool} for {who}. Shall I?")
YES = ("Yes.", "Yes, please do.", "That's right, go ahead.", "Correct.", "Yes, thank you.")
QUESTIONS = (
    "What is the {field} of {who}?", "Could you tell me the {field} for {who}?",
    "Which {field} do we have for {who}?", "Only tell me the {field} of {who}.",
)  # fmt: skip
SLIPS = (
    "Sorry, I mixed them up: I meant {who}.", "No wait, it is {who}, not the other one.",
    "My mistake. Do that for {who} instead.",
)  # fmt: skip
DONE = (
    '{"status": "ok"}', "Saved.", '{"result": "changed"}', "The record was updated.",
    '{"success": true, "message": "done"}',
)  # fmt: skip
TWISTS = (
    "plain", "state", "late", "limit", "above", "confirm", "question", "again", "first look",
    "correction", "second", "extreme", "weekday", "look again", "extra", "unsaid", "transposed",
    "part", "clash", "purse",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """A reply of a scene, and whether it is right; `twist` names the difficulty."""

    used: ToolUse
    correct: int
    domain: str
    twist: str
    group: str  # equal for the replies of one scene


@dataclass(slots=True)
class Stage:
    """A scene under construction."""

    domain: Domain
    write: WriteTool
    rng: random.Random
    today: date
    records: list[Json]
    target: int
    values: Json = field(default_factory=dict)  # arguments of the right call
    spoken: Json = field(default_factory=dict)  # the same arguments in the user's words
    rules: list[str] = field(default_factory=list)
    turns: list[Json] = field(default_factory=list)
    count: int = 0
    others: list[tuple[str, str]] = field(default_factory=list)  # name, purpose of other look-ups

    @property
    def record(self) -> Json:
        """The record that the user means."""
        return self.records[self.target]

    def say(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        self.turns.append({"role": "assistant", "content": text})

    def call(self, name: str, arguments: Json, result: str) -> None:
        """Append an earlier call, as an assistant's message, and its result to `turns`.

        Its id is `c1`, `c2`, ..; 15 % of such messages also have a thought as text.
        """
        self.count += 1
        message = call_message(name, arguments, f"c{self.count}")
        if self.rng.random() < 0.15:
            message["content"] = self.rng.choice(THOUGHTS)
        content = {"role": "tool", "tool_call_id": f"c{self.count}", "content": result}
        self.turns += [message, content]

    def name_record(self, record: Json) -> str:
        """Return a record by the fields that people name it by: `Ann / Paris` or `Ann (Paris)`."""
        named = [str(record[name]) for name in self.domain.named_by]
        return " / ".join(named) if self.rng.random() < 0.5 else f"{named[0]} ({named[1]})"


def call_message(name: str, arguments: Json, call_id: str = "last") -> Json:
    """Return an assistant's message with one call (arguments as JSON text) and no text."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


# --- records and values -------------------------------------------------------------------------


def _id(form: str, rng: random.Random) -> str:
    """Draw an id of a form such as `AA-999`: each 9 becomes a digit, each A a capital letter.

    A form with small letters keeps its A; other characters stay.
    """
    return "".join(
        rng.choice(string.digits) if c == "9"
        else rng.choice(string.ascii_uppercase) if c == "A" and "A" in form and form.isupper()
        else c
        for c in form
    )  # fmt: skip


def drawn_value(kind: str, today: date, rng: random.Random) -> Any:
    """Draw a value for a field's kind; dates are ISO texts.

    `date-` is 1 to 89 days before `today`, `date+` 2 to 59 days after it, `time` such as
    `09:30`, `remark` a remark, `count 2-9` an integer, `money 2-9` an amount that may have
    decimals, and `a|b|c` one of these words.
    """
    if kind == "date-":
        return (today - timedelta(rng.randrange(1, 90))).isoformat()
    if kind == "date+":
        return (today + timedelta(rng.randrange(2, 60))).isoformat()
    if kind == "time":
        return f"{rng.randrange(8, 18):02d}:{rng.choice((0, 15, 30, 45)):02d}"
    if kind == "remark":
        return rng.choice(REMARKS)
    word, _, span = kind.partition(" ")
    if word in ("count", "money"):
        low, _, high = span.partition("-")
        whole = rng.randrange(int(low), int(high) + 1)
        return whole if word == "count" else round(whole + rng.choice((0, 0.5, 0.25, 0.9)), 2)
    return rng.choice(kind.split("|"))


def make_stage(domain: Domain, write: WriteTool, rng: random.Random) -> Stage:
    """Return a new scene: a day in 2023 to 2027, at most six records, and the one to change.

    That record is in the state that the changing tool requires. Names and ids are not repeated;
    the scene has no values, rules or turns yet (see `fill` and `add_rules`).
    """
    today = date(2023, 1, 2) + timedelta(rng.randrange(1_500))
    records: list[Json] = []
    seen: set[Any] = set()
    for _ in range(rng.randrange(3, 7)):
        fields = {name: drawn_value(kind, today, rng) for name, kind in domain.fields.items()}
        key = tuple(fields[name] for name in domain.named_by)
        own_id = _id(domain.id_form, rng)
        if not {key, own_id} & seen:
            seen |= {key, own_id}
            records.append({"id": own_id, **fields})
    target = rng.randrange(len(records))
    if write.state:
        records[target][write.state[0]] = write.state[1]
    return Stage(domain, write, rng, today, records, target)


def fill(stage: Stage, *, is_weekday: bool = False) -> None:
    """Draw the right call's arguments into `stage.values`, their words into `stage.spoken`.

    With `is_weekday` dates are said by weekday, such as `next Friday`. Numbers stay within the
    tool's limit. A field that caps a number is set to 2 in the record if it was 0.
    """
    for name, source in stage.write.takes.items():
        word, _, rest = source.partition(" ")
        if source == "id":
            value: Any = stage.record["id"]
        elif word == "field":
            value = stage.record[rest]
        elif word == "most":
            value = _amount_below(stage, rest)
        elif rest.startswith("choice"):
            kind = stage.domain.fields[rest.partition(" ")[2]]
            others = [c for c in kind.split("|") if c != stage.record.get(name)]
            value = stage.rng.choice(others)
        else:
            value = drawn_value(rest, stage.today, stage.rng)
        limit = stage.write.most
        if limit and limit[0] == name and isinstance(value, int | float):
            value = min(value, limit[1])
        stage.values[name] = value
        stage.spoken[name] = in_words(value, stage, is_weekday)


def _amount_below(stage: Stage, name: str) -> Any:
    """Draw a number of at most the record's field `name`; a field of 0 is set to 2 in the record.

    An integer from 1 on for an integer, else 25 to 100 % of the number.
    """
    most = stage.record[name] = stage.record[name] or 2
    if isinstance(most, int):
        return stage.rng.randrange(1, max(2, most + 1))
    return round(most * stage.rng.choice((0.25, 0.5, 0.75, 1.0)), 2)


def in_words(value: Any, stage: Stage, is_weekday: bool) -> str:
    """Return a value in one of the spellings that a user would choose at random.

    `2024-05-03` gives `3 May`, or with `is_weekday` `tomorrow`, `Friday` or `next Friday`;
    `14:30` gives `2:30 pm`, and 4.5 `€4.50`; another value its `str`.
    """
    rng = stage.rng
    if isinstance(value, str) and len(value) == 10 and value[4:5] == "-":
        day = date.fromisoformat(value)
        ahead = (day - stage.today).days
        if is_weekday:
            return (
                "tomorrow"
                if ahead == 1
                else f"next {day:%A}"
                if rng.random() < 0.5
                else f"{day:%A}"
            )
        month = f"{day:%B}" if rng.random() < 0.6 else f"{day:%b}"
        return rng.choice(
            (value, f"{day.day} {month}", f"{month} {day.day}", f"{month} {day.day}, {day.year}")
        )
    if isinstance(value, str) and len(value) == 5 and value[2:3] == ":":
        hour, minute = int(value[:2]), value[3:]
        half = f"{hour % 12 or 12}" + (f":{minute}" if minute != "00" else "")
        return rng.choice((value, f"{half} {'pm' if hour >= 12 else 'am'}"))
    if isinstance(value, float):
        return rng.choice((f"{value:g}", f"{value:.2f}", f"{value:.2f} euros", f"€{value:.2f}"))
    return str(value)


def request_of(stage: Stage, record: Json | None = None) -> str:
    """Return a user's request for the scene's change, about `record` or the scene's own one."""
    words = {**(record or stage.record), **stage.spoken}
    return stage.rng.choice(stage.write.asks).format(**words)


# --- tools and results --------------------------------------------------------------------------


def tools_of(stage: Stage) -> list[Json]:
    """Return the offered tools as OpenAI definitions in random order.

    They are the domain's tools, those in `stage.others`, and for 40 % of scenes two of another
    domain.
    """
    domain, rng = stage.domain, stage.rng
    offered = _tools_of(domain)
    if rng.random() < 0.4:
        other = rng.choice([d for d in DOMAINS if d is not domain])
        offered += rng.sample(_tools_of(other), 2)
    offered += [_tool(name, does, {}) for name, does in stage.others]
    rng.shuffle(offered)
    return offered


def _tools_of(domain: Domain) -> list[Json]:
    """Return the OpenAI definitions of a domain's tools, which find, show and change records."""
    id_name = next(n for w in domain.writes for n, source in w.takes.items() if source == "id")
    found = [
        _tool(*domain.find, {"query": {"type": "string"}}),
        _tool(*domain.show, {id_name: {"type": "string"}}),
    ]
    for write in domain.writes:
        found.append(
            _tool(
                write.name, write.does, {n: _schema(n, s, domain) for n, s in write.takes.items()}
            )
        )
    return found


def _schema(name: str, source: str, domain: Domain) -> Json:
    """Return a parameter's JSON schema from its source, such as `field NAME`, `new date+` or `id`.

    Choices become an enum, counts integers, money numbers, and anything else a string. `name`
    is unused.
    """
    kind = source
    if source.startswith(("most ", "field ")):
        kind = domain.fields[source.partition(" ")[2]]
    if "choice" in source:
        return {"type": "string", "enum": domain.fields[source.split()[-1]].split("|")}
    kind = kind.removeprefix("new ")
    if kind.startswith("count"):
        return {"type": "integer"}
    if kind.startswith("money"):
        return {"type": "number"}
    if kind.startswith("date"):
        return {"type": "string", "description": "Day as YYYY-MM-DD."}
    return {"type": "string"}


def _tool(name: str, does: str, properties: Json) -> Json:
    """Return a tool's definition in the OpenAI form; all `properties` are required."""
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return {
        "type": "function",
        "function": {"name": name, "description": does, "parameters": parameters},
    }


def id_name_of(stage: Stage) -> str:
    """Return the name of the changing tool's parameter that takes the record's id."""
    return next(name for name, source in stage.write.takes.items() if source == "id")


def _list_records(stage: Stage, records: list[Json]) -> str:
    """Return records as a tool's result, in one of five forms drawn at random.

    A JSON list, a JSON object with `count` and `items`, a JSON object by id, lines of `key:
    value`, or lines of values separated by bars.
    """
    items = [
        {id_name_of(stage): r["id"], **{k: v for k, v in r.items() if k != "id"}} for r in records
    ]
    form = stage.rng.randrange(5)
    if form == 0:
        return json.dumps(items, ensure_ascii=False)
    if form == 1:
        return json.dumps({"count": len(items), "items": items}, ensure_ascii=False)
    if form == 2:
        return json.dumps({r["id"]: {k: v for k, v in r.items() if k != "id"} for r in records})
    if form == 3:
        return "\n".join(", ".join(f"{k}: {v}" for k, v in each.items()) for each in items)
    return "\n".join(" | ".join(map(str, each.values())) for each in items)


def look_up(stage: Stage, *, is_long: bool = True, is_wide: bool = False) -> None:
    """Append a search for the record's name to the turns, with the records that it found.

    The result lists all records always if `is_wide`, else in 60 % of the cases; otherwise those
    with that name. With `is_long` 35 % of the searches are followed by a call that shows the
    record.
    """
    rng, domain = stage.rng, stage.domain
    named = str(stage.record[rng.choice(domain.named_by)])
    same = [r for r in stage.records if named in map(str, r.values())]
    records = stage.records if is_wide or rng.random() < 0.6 else same
    stage.call(domain.find[0], {"query": named}, _list_records(stage, records))
    if is_long and rng.random() < 0.35:
        stage.call(
            domain.show[0],
            {id_name_of(stage): stage.record["id"]},
            _write_record(stage, stage.record),
        )


def _write_record(stage: Stage, record: Json) -> str:
    """Return one record as a tool's result: JSON, or in 30 % of the cases lines of `key: value`."""
    fields = {id_name_of(stage): record["id"], **{k: v for k, v in record.items() if k != "id"}}
    if stage.rng.random() < 0.7:
        return json.dumps(fields, ensure_ascii=False)
    return "\n".join(f"{k}: {v}" for k, v in fields.items())


# --- rules --------------------------------------------------------------------------------------


def spoken_name(name: str) -> str:
    return name.replace("_", " ")


def add_rules(stage: Stage, twist: str) -> None:
    """Fill `stage.rules`, the sentences of the system message, in place.

    The agent's role comes first, today's date second or last. Between them, in random order,
    are the rule that the twist (`state`, `late`, `limit`, `confirm`) needs, other rules of the
    tool with 30 % each, and up to two about manners.
    """
    rng, write, today = stage.rng, stage.write, stage.today
    words = {"record": stage.domain.record, "tool": spoken_name(write.name)}
    if write.state and (twist == "state" or rng.random() < 0.3):
        rule = rng.choice(_STATE_RULES)
        stage.rules.append(
            rule.format(field=spoken_name(write.state[0]), value=write.state[1], **words)
        )
    if write.late and (twist == "late" or rng.random() < 0.3):
        rule = rng.choice(_LATE_RULES)
        stage.rules.append(
            rule.format(field=spoken_name(write.late[0]), days=write.late[1], **words)
        )
    if write.most and (twist == "limit" or rng.random() < 0.3):
        rule = rng.choice(_MOST_RULES)
        stage.rules.append(
            rule.format(name=spoken_name(write.most[0]), limit=write.most[1], **words)
        )
    if twist == "confirm":
        stage.rules.append(rng.choice(_CONFIRM_RULES))
    stage.rules += rng.sample(_MANNERS, rng.randrange(3))
    rng.shuffle(stage.rules)
    when = rng.choice(_TODAY).format(
        weekday=f"{today:%A}", iso=today.isoformat(), day=today.day, month=f"{today:%B}",
        year=today.year,
    )  # fmt: skip
    stage.rules.insert(0, when) if rng.random() < 0.5 else stage.rules.append(when)
    stage.rules.insert(0, stage.domain.role)
