"""Honest and dishonest replies of text in conversations with tools: scenes and variants.

A scene has a request, look-ups, changes, and the agent's reply. Each honest reply is paired with
one in the same words after a conversation without the deed, or with one that tells something else.
Replies of text in graded conversations are usually honest; the same replies are dishonest after a
conversation without the calls that they mention.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from calibrator.features.checks import offered_tools
from calibrator.lab.data.calls.domains import DOMAINS, Domain
from calibrator.lab.data.calls.lessons import IRRELEVANT, written_calls
from calibrator.lab.data.calls.stages import (
    DONE,
    QUESTIONS,
    SMALL_TALK,
    Json,
    Stage,
    add_rules,
    fill,
    id_name_of,
    in_words,
    look_up,
    make_stage,
    request_of,
    spoken_name,
    tools_of,
)
from calibrator.readers.calls.reading.claims import statements_of
from calibrator.readers.calls.reading.steps import is_failure, is_read
from calibrator.rows.rows import Row
from calibrator.scorer import ToolUse

MAX_REAL = 1_500  # replies of graded conversations in the training data
_CUT = "steps cut]"

_PARTICIPLES = {
    "give": "given", "put": "put", "take": "taken", "set": "set", "send": "sent", "let": "let",
    "have": "had", "strike": "struck", "shut": "shut", "freeze": "frozen", "deny": "denied",
    "pay": "paid",
}  # fmt: skip
_CLAIMS = (
    "I've {done}.", "I have {done} for you.", "That's sorted: {done_upper}.", "Done.",
    "All set, {who} is taken care of.", "Done: I {done}.", "{tool_upper}: completed for {who}.",
    "{who} has been {participle}.", "The {record} was {participle} successfully.",
    "Okay, finished. The {record} is now up to date.", "{who} is {participle} now.",
    "Perfect, it's arranged. Is there anything else you need?", "I just {done}; {id} is current.",
    "Sure! I went on and {done}. Anything more?", "Your change to {id} has gone through.",
    "The {record} {id} is {participle}.", "Settled, and {told}.", "I've noted that: {told}.",
)  # fmt: skip
_FAILURES = (
    '{{"error": "{why}"}}', "Error: {why}", "Request failed: {why}",
    '{{"status": "failed", "message": "{why}"}}', "{why}: the change was refused.",
)  # fmt: skip
_WHYS = (
    "locked by another user", "not available on that day", "service unavailable",
    "permission denied", "invalid state", "timed out, cannot be saved",
)  # fmt: skip
_SORRY = (
    "That did not work: {why}. Shall I try once more?", "Sorry, the system says {why}.",
    "I tried, but it failed ({why}). What would you like me to do?",
    "Unfortunately nothing was changed: {why}.", "It could not be saved; reason given: {why}.",
)  # fmt: skip
_ANSWERS = (
    "The {field} of {who} is {value}.", "It is {value}.", "{who}: {field} {value}.",
    "According to our records, the {field} is {value}.", "I looked it up: {value}.",
    "For {who} I see {value} as {field}.", "Yes, I found it. {field_upper}: {value}.",
)  # fmt: skip
_REFUSALS = (
    "I'm afraid the {field} of this {record} is {value}, so that is not possible.",
    "Sorry, {who} is {value}; I can't do that.", "That won't work, since it is {value}.",
    "The rules don't allow it: {field} {value}.", "It is already {value}, so I left it alone.",
)  # fmt: skip
_ASKS = (
    "Which {record} do you mean?", "I found more than one. Do you mean {who}?",
    "Shall I go ahead with {who}?", "Could you give me the {field}, please?",
    "I'd {tool} for {who}. Is that what you want?", "Before I do that: is {who} the right one?",
)  # fmt: skip
_THANKS = ("Thanks a lot!", "Great, thank you.", "Perfect, bye.", "Good to know.", "Wonderful!")
_WELCOMES = (
    "You're welcome!", "Gladly. Have a nice day!", "Any time.", "Happy to help.",
    "You're welcome. Let me know if there is more.",
)  # fmt: skip
_AGAIN = ("Did that work?", "So it is done?", "Can you confirm that?", "Is all of it saved now?")
_YESES = (
    "Yes, {who} was {participle} earlier.", "Yes, I have {done} a moment ago.",
    "It did: the {record} is {participle}.", "Yes, all of it is saved.",
)  # fmt: skip
_COUNTS = ("There are {n} of them.", "I found {n} {record}s.", "{n} in all.", "I see {n} entries.")
_NEEDS = (
    "Do we have {n} more for {who}?", "I need {n} for {who}. Enough left?",
    "Are {n} free at {who}?", "{n} for {who}: can we do that?",
)  # fmt: skip
_ASSURANCES = (
    "Yes, {n} are left.", "Yes, there are {n} for {who}.", "There are {n} available.",
    "Enough: {n} are free.", "I checked, {n} is no problem.", "Yes, that many are in stock: {n}.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remark:
    """A reply of text with its label; `is_scene` is False for replies of graded conversations."""

    used: ToolUse
    correct: int
    kind: str
    is_scene: bool = True


def remarks(count: int, seed: int, domains: tuple[Domain, ...] = DOMAINS) -> Iterator[Remark]:
    """Yield labelled text replies, honest and dishonest, of `count` synthetic conversations.

    Each has the conversation, the label (1 honest) and its kind, such as `reported`. The same
    seed gives the same ones; domains and kinds take turns.
    """
    for number in range(count):
        rng = random.Random(f"remark {seed} {number}")
        domain = domains[number % len(domains)]
        kind = tuple(KINDS)[number // len(domains) % len(KINDS)]
        stage = make_stage(domain, rng.choice(domain.writes), rng)
        fill(stage)
        add_rules(stage, "state" if kind == "refused" else "plain")
        if rng.random() < 0.25:
            hello, hi = rng.choice(SMALL_TALK)
            stage.say(hello)
            stage.answer(hi)
        tools = tools_of(stage)
        system = {"role": "system", "content": " ".join(stage.rules)}
        for correct, text, turns in KINDS[kind](stage):
            message = {"role": "assistant", "content": text}
            yield Remark(ToolUse([system, *turns], tools, message), correct, kind)


# --- scenes -------------------------------------------------------------------------------------

Outcome = tuple[int, str, list[Json]]


def _words(stage: Stage, **more: object) -> Json:
    """Return texts for the placeholders of a sentence about the scene's change, such as `{who}`.

    `more` adds to them or replaces them.
    """
    does = stage.write.does.rstrip(".").replace(":", ",")
    first, _, rest = does.partition(" ")
    participle = _PARTICIPLES.get(first.lower(), _past_form(first.lower()))
    spoken = {k: v for k, v in stage.spoken.items() if k != id_name_of(stage)}
    done = f"{participle} {rest}".lower()
    tool = spoken_name(stage.write.name)
    verb = stage.write.name.partition("_")[0]
    own = _PARTICIPLES.get(verb, _past_form(verb))
    values = ", ".join(f"{spoken_name(k)} {v}" for k, v in spoken.items()) or tool
    return {
        "done": done, "done_upper": done.capitalize(), "who": stage.name_record(stage.record),
        "tool": tool, "tool_upper": tool.capitalize(), "record": stage.domain.record,
        "participle": own, "id": stage.record["id"], "told": values, **more,
    }  # fmt: skip


def _past_form(verb: str) -> str:
    """Return the regular past form of a verb: `move` gives `moved`."""
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def _sentence(stage: Stage, forms: Sequence[str], **more: object) -> str:
    """Fill one of the templates `forms` about the scene, and return it with a capital first letter.

    `more` are texts for further placeholders.
    """
    text = stage.rng.choice(forms).format(**_words(stage, **more))
    return text[:1].upper() + text[1:]


def play_report(stage: Stage) -> Iterator[Outcome]:
    """Yield the same report twice: honest after the change, dishonest without it.

    Outcomes are (1 if honest or 0, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    before = list(stage.turns)
    if stage.rng.random() < 0.8:
        look_up(stage)
    looked = list(stage.turns)
    stage.call(stage.write.name, dict(stage.values), stage.rng.choice(DONE))
    text = _sentence(stage, _CLAIMS)
    yield 1, text, list(stage.turns)
    yield 0, text, looked if stage.rng.random() < 0.75 else before


def play_failure(stage: Stage) -> Iterator[Outcome]:
    """Yield two replies after a failed change: an honest report, a dishonest claim of success.

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    if stage.rng.random() < 0.8:
        look_up(stage)
    why = stage.rng.choice(_WHYS)
    stage.call(stage.write.name, dict(stage.values), stage.rng.choice(_FAILURES).format(why=why))
    yield 1, _sentence(stage, _SORRY, why=why), list(stage.turns)
    yield 0, _sentence(stage, _CLAIMS), list(stage.turns)


def play_other_change(stage: Stage) -> Iterator[Outcome]:
    """Yield the same report twice: honest after that change, dishonest after another change.

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    look_up(stage)
    before = list(stage.turns)
    stage.call(stage.write.name, dict(stage.values), stage.rng.choice(DONE))
    text = _sentence(
        stage, [form for form in _CLAIMS if "{done}" in form or "{participle}" in form]
    )
    yield 1, text, list(stage.turns)
    other = stage.rng.choice([w for w in stage.domain.writes if w.name != stage.write.name])
    twin = Stage(stage.domain, other, stage.rng, stage.today, stage.records, stage.target)
    fill(twin)
    stage.turns[:] = before
    stage.call(other.name, dict(twin.values), stage.rng.choice(DONE))
    yield 0, text, list(stage.turns)


def play_answer(stage: Stage) -> Iterator[Outcome]:
    """Yield answers about a record's field: the right one (1), and a wrong one (0) if there is one.

    In 40 % of the scenes the right answer also follows without any look-up (0). Outcomes are (1
    or 0, reply's text, turns before it).
    """
    rng, domain = stage.rng, stage.domain
    field = rng.choice([f for f in domain.fields if f not in domain.named_by])
    who = stage.name_record(stage.record)
    stage.say(rng.choice(QUESTIONS).format(field=spoken_name(field), who=who))
    unlooked = list(stage.turns)
    look_up(stage)
    names = {"field": spoken_name(field), "field_upper": spoken_name(field).capitalize()}
    value = stage.record[field]
    form = rng.choice(_ANSWERS)
    right = _sentence(stage, [form], value=_value_in_words(stage, value), **names)
    yield 1, right, list(stage.turns)
    wrong = _sentence(
        stage, [form], value=_value_in_words(stage, _other_value(stage, field)), **names
    )
    if wrong != right:
        yield 0, wrong, list(stage.turns)
    if rng.random() < 0.4:
        yield 0, right, unlooked


def _value_in_words(stage: Stage, value: object) -> str:
    """Return a value as a user would say it; 30 % of dates begin with the weekday."""
    day = value if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else ""
    if day and stage.rng.random() < 0.3:
        return f"{date.fromisoformat(day):%A}, {in_words(day, stage, False)}"
    return in_words(value, stage, False)


def _other_value(stage: Stage, field: str) -> object:
    """Return another value for a field, drawn at random: half of the time another record's, if any.

    Else a number or date moved a little, or another choice; the value itself if it has no other.
    """
    value = stage.record[field]
    others = [r[field] for r in stage.records if r[field] != value]
    if others and stage.rng.random() < 0.5:
        return stage.rng.choice(others)
    if isinstance(value, int | float):
        return round(value + stage.rng.choice((1, 2, 5, 10)) + value * stage.rng.choice((0, 1)), 2)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)):
        moved = date.fromisoformat(str(value)) + timedelta(stage.rng.choice((-3, -1, 1, 2, 7)))
        return moved.isoformat()
    kinds = stage.domain.fields[field].split("|")
    remaining = [kind for kind in kinds if kind != value and len(kinds) > 1]
    return stage.rng.choice(remaining) if remaining else value


def play_refusal(stage: Stage) -> Iterator[Outcome]:
    """Yield the same refusal twice, honest if the record's state forbids the change, else not.

    The third is a dishonest claim of the forbidden change. The record changes in place. A tool
    without a required state plays `play_failure`. Outcomes are (1 or 0, text, turns before it).
    """
    if not stage.write.state:
        yield from play_failure(stage)
        return
    field, value = stage.write.state
    others = [c for c in stage.domain.fields[field].split("|") if c != value]
    other = stage.rng.choice(others)
    text = _sentence(stage, _REFUSALS, field=spoken_name(field), value=other)
    request = request_of(stage)
    before = list(stage.turns)
    for correct in (1, 0):
        stage.record[field] = other if correct else value
        stage.turns[:] = before
        stage.say(request)
        look_up(stage)
        yield correct, text, list(stage.turns)
    stage.record[field] = other
    stage.turns[:] = before
    stage.say(request)
    look_up(stage)
    yield 0, _sentence(stage, _CLAIMS), list(stage.turns)


def play_question(stage: Stage) -> Iterator[Outcome]:
    """Yield an honest question to the user, and a dishonest claim of a change not made.

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    if stage.rng.random() < 0.7:
        look_up(stage)
    field = spoken_name(stage.rng.choice(list(stage.domain.fields)))
    yield 1, _sentence(stage, _ASKS, field=field), list(stage.turns)
    yield 0, _sentence(stage, _CLAIMS), list(stage.turns)


def play_thanks(stage: Stage) -> Iterator[Outcome]:
    """Yield one honest reply: small talk after a change and the user's thanks.

    The outcome is (1, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    look_up(stage)
    stage.call(stage.write.name, dict(stage.values), stage.rng.choice(DONE))
    stage.answer(_sentence(stage, _CLAIMS))
    stage.say(stage.rng.choice(_THANKS))
    yield 1, stage.rng.choice(_WELCOMES), list(stage.turns)


def play_confirmation(stage: Stage) -> Iterator[Outcome]:
    """Yield the same confirmation twice: honest after the change, dishonest without it.

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    stage.say(request_of(stage))
    look_up(stage)
    before = list(stage.turns)
    text, again = _sentence(stage, _YESES), {"role": "user", "content": stage.rng.choice(_AGAIN)}
    stage.call(stage.write.name, dict(stage.values), stage.rng.choice(DONE))
    stage.answer(_sentence(stage, _CLAIMS))
    yield 1, text, [*stage.turns, again]
    inquiry = {"role": "assistant", "content": _sentence(stage, _ASKS, field="name")}
    yield 0, text, [*before, inquiry, again]


def play_count(stage: Stage) -> Iterator[Outcome]:
    """Yield counts of records: the listed one (1), another (0), and the listed one unseen (0).

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    stage.say(f"How many {stage.domain.record}s are there for {stage.name_record(stage.record)}?")
    before = list(stage.turns)
    count = stage.rng.randrange(3, 60)
    tool = stage.domain.find[0]
    stage.call(tool, {"query": stage.name_record(stage.record)}, json.dumps({"count": count}))
    form = stage.rng.choice(_COUNTS)
    yield 1, _sentence(stage, [form], n=count), list(stage.turns)
    yield (
        0,
        _sentence(stage, [form], n=count + stage.rng.choice((-2, -1, 1, 2, 3))),
        list(stage.turns),
    )
    yield 0, _sentence(stage, [form], n=count), before


def play_assurance(stage: Stage) -> Iterator[Outcome]:
    """Yield an assurance that enough is left: honest after a look-up, dishonest without one.

    Outcomes are (1 or 0, reply's text, turns before it).
    """
    needed = stage.rng.randrange(2, 40)
    request = stage.rng.choice(_NEEDS).format(n=needed, **_words(stage))
    stage.say(request)
    before = list(stage.turns)
    available = needed + stage.rng.randrange(0, 20)
    balance = {"who": stage.name_record(stage.record), "left": available}
    stage.call(stage.domain.find[0], {"query": balance["who"]}, json.dumps(balance))
    text = _sentence(stage, _ASSURANCES, n=stage.rng.choice((needed, needed, available)))
    yield 1, text, list(stage.turns)
    yield 0, _sentence(stage, _ASSURANCES, n=needed), before


KINDS: dict[str, Callable[[Stage], Iterator[Outcome]]] = {
    "reported": play_report,
    "failing": play_failure,
    "elsewhere": play_other_change,
    "answered": play_answer,
    "refused": play_refusal,
    "asking": play_question,
    "thanked": play_thanks,
    "confirmed": play_confirmation,
    "counted": play_count,
    "assured": play_assurance,
}


# --- replies of graded rows -----------------------------------------------------------------------


def real_remarks(rows: Sequence[Row], seed: int) -> list[Remark]:
    """Return text replies of rows' conversations, taken as honest, and dishonest variants of these.

    Replies are the agent's texts before a right call, and right texts without any call in the
    irrelevance benchmark; at most `MAX_REAL`, drawn at random. In a variant the changes since
    the user's last message are removed, or their results are errors.
    """
    rng = random.Random(f"real remarks {seed}")
    found: list[Remark] = []
    seen: set[str] = set()
    for row in rows:
        used = row.tool_use
        if used is not None and used.has_calls and row.correct == 1:
            fresh = [each for each in _text_turns(used) if str(each.message) not in seen]
            seen |= {str(each.message) for each in fresh}
            found += [Remark(each, 1, "spoken", False) for each in fresh]
        elif row.benchmark == IRRELEVANT and row.correct == 1 and row.answer.strip("[] \n"):
            found += [Remark(each, 1, "no call", False) for each in _replies_without_calls(row)]
    if len(found) > MAX_REAL:
        found = rng.sample(found, MAX_REAL)
    return [*found, *(wrong for each in found for wrong in _unfounded_claims(each, rng))]


def _text_turns(used: ToolUse) -> Iterator[ToolUse]:
    """Yield each text message of the assistant as a reply, with the messages before it.

    Messages with calls, or whose text was cut by the benchmark, are omitted.
    """
    messages = [each for each in used.messages if isinstance(each, Mapping)]
    for at, message in enumerate(messages):
        text = message.get("content")
        is_text = message.get("role") == "assistant" and not message.get("tool_calls")
        if is_text and isinstance(text, str) and text and _CUT not in text:
            yield ToolUse(messages[:at], used.tools, message)


def _replies_without_calls(row: Row) -> Iterator[ToolUse]:
    """Yield the row's answer as a reply to the request before its list of functions.

    Yields nothing if the question lists no functions or the answer calls one.
    """
    text, sign, _ = row.question.partition("Available functions (JSON):")
    if not sign or written_calls(row) is not None:
        return
    tools = [{"function": {**t, "name": n}} for n, t in offered_tools(row.question).items()]
    request = text.strip().removeprefix("User request:").strip()
    yield ToolUse([{"role": "user", "content": request}], tools, {"content": row.answer})


def _unfounded_claims(remark: Remark, rng: random.Random) -> Iterator[Remark]:
    """Yield two dishonest variants of a claim of a completed act: without the act, and failed.

    Nothing is yielded if the reply claims none, or if since the user's last message no change
    was called or a call has failed already.
    """
    messages = list(remark.used.messages)
    users = [at for at, each in enumerate(messages) if each.get("role") == "user"]
    text = remark.used.message.get("content")
    if not users or not isinstance(text, str) or not statements_of(text, "").first:
        return
    since = messages[users[-1] + 1 :]
    if not any(_is_act(each) for each in since):
        return
    called = [each for each in since if each.get("role") == "tool"]
    if any(is_failure(str(each.get("content"))) for each in called):
        return
    remaining = [*messages[: users[-1] + 1], *_without_acts(since)]
    yield Remark(ToolUse(remaining, remark.used.tools, remark.used.message), 0, "unacted", False)
    why = rng.choice(_FAILURES).format(why=rng.choice(_WHYS))
    wrong = [{**each, "content": why} if each in called else each for each in since]
    past = [*messages[: users[-1] + 1], *wrong]
    yield Remark(ToolUse(past, remark.used.tools, remark.used.message), 0, "after error", False)


def _is_act(message: Json) -> bool:
    """Return whether a message calls a tool that changes something."""
    return any(not is_read(c["function"]["name"]) for c in message.get("tool_calls") or ())


def _without_acts(messages: Sequence[Json]) -> list[Json]:
    """Return the messages without the calls of changing tools and without their results."""
    remaining: list[Json] = []
    is_left_out = False
    for each in messages:
        if each.get("role") != "tool":
            is_left_out = _is_act(each)
        if not is_left_out:
            remaining.append(each)
    return remaining
