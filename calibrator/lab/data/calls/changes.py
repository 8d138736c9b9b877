"""Changes that make a right call wrong in one respect.

Each function makes the change of its name in a draft and no other, and returns whether it could.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from calibrator.lab.data.calls.contraries import (
    measure_changed,
    opposed_tool,
    opposed_value,
    parent_folder,
)
from calibrator.lab.data.calls.drafts import Draft
from calibrator.readers.calls.reading.steps import is_read
from calibrator.readers.calls.reading.values import Value, calendar_day, name_words, shape

Json = dict[str, Any]

_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_CLOCK = re.compile(r"\b(\d{2}):(\d{2})\b")
_DONE = ('{"status": "ok"}', "Done.", '{"success": true}', "The change was saved.", "OK")
_FAILED = (
    "Error: the request was refused; this is not allowed.",
    '{"error": "not permitted for this record"}',
    "Failed: the operation cannot be carried out in the present state.",
)
_OFFERS = ("Shall I go ahead?", "I can do that now. Is that all right?", "Do you want me to do it?")
YES = ("Yes, please.", "Yes, go ahead.", "Sure, do it.", "Yes.", "Please do, thanks.")
_NO = (
    "No, let that be.",
    "Wait, don't do that.",
    "No thanks, I have changed my mind.",
    "Hold on, please do not change anything yet.",
)
_LIMITS = (
    "The {name} of {tool} may be at most {limit}.",
    "Never {tool} with a {name} of more than {limit}.",
    "For {tool} the maximum {name} is {limit}.",
    "You may {tool} up to a {name} of {limit}; anything above that needs a manager.",
)
_FORBIDDEN = (
    "You must not {tool}; that is for the staff alone.",
    "Never {tool} in this conversation.",
    "You are not allowed to {tool}.",
)


# --- values -------------------------------------------------------------------------------------


def other_entity(draft: Draft) -> bool:
    """Replace an id, mail, path or name by another of the conversation; False if there is none."""
    for value in _shuffle_values(draft, "id", "mail", "path", "name"):
        others = _other_values(value, draft)
        if others and draft.put(value, draft.rng.choice(others)):
            return True
    return False


def _other_values(value: Value, draft: Draft) -> list[Any]:
    """Return other values from the records' field that has `value`, sorted, without the call's own.

    If no record has an id or mail address: words of its form, such as `K17` for `B42`.
    """
    used = {v.text for v in draft.values}
    fields = {
        key
        for record in draft.sources.records
        for key, other in record.fields.items()
        if str(other).lower() == value.text
    }
    found = {
        str(other): other
        for record in draft.sources.records
        for key, other in record.fields.items()
        if key in fields and isinstance(other, str | int)
    }
    if not found and value.kind in ("id", "mail"):
        text = draft.sources.results.text + "\n" + draft.sources.users.text
        found = {each: each for each in re.findall(r"[\w.+@-]+", text)[:2_000]
                 if shape(each) == shape(value.text)}  # fmt: skip
        raw = str(value.raw)
        found = {k: (str(v).upper() if raw.isupper() else v) for k, v in found.items()}
    listed = [(text, other) for text, other in found.items() if text.lower() not in used]
    return [other if isinstance(value.raw, type(other)) else text for text, other in sorted(listed)]


def number_moved(draft: Draft) -> bool:
    """Change a number of the call by a step or factor; the new one is not in the request.

    False if the call has no number that can be changed.
    """
    for value in _shuffle_values(draft, "number"):
        number = value.number or 0.0
        steps = [1, -1, 2, 10, -10] if number.is_integer() else [1.0, -1.0, 0.1 * number, 5.0]
        moved = [number + step for step in steps] + [number * 1.1, number * 2, number / 2]
        fresh = [n for n in moved if n > 0 and not _is_in_context(n, draft)]
        if fresh and draft.put(value, _as_number(draft.rng.choice(fresh), value.raw)):
            return True
    return False


def number_of_context(draft: Draft) -> bool:
    """Replace a number by another one of the request or the results; False if there is none."""
    numbers = sorted(draft.sources.request.numbers | draft.sources.results.numbers)
    for value in _shuffle_values(draft, "number"):
        near = [n for n in numbers if n != value.number and 0 < n < 100 * (value.number or 1.0)]
        if near and draft.put(value, _as_number(draft.rng.choice(near), value.raw)):
            return True
    return False


def unit_changed(draft: Draft) -> bool:
    """Scale a number as a wrong unit or sign would (60, 100, -1, ..); False if there is none."""
    for value in _shuffle_values(draft, "number"):
        number = value.number or 0.0
        factors = (60, 1 / 60, 100, 0.01, 1_000, 0.001, 24, -1)
        scaled = [number * f for f in factors if abs(number * f) >= 0.01]
        if isinstance(value.raw, int):
            scaled = [n for n in scaled if n.is_integer()]
        if number and scaled and draft.put(value, _as_number(draft.rng.choice(scaled), value.raw)):
            return True
    return False


def _is_in_context(number: float, draft: Draft) -> bool:
    """Return whether the user's request has this number."""
    return number in draft.sources.request.numbers


def _as_number(number: float, raw: Any) -> Any:
    """Convert a number to the type of the value that it replaces."""
    if isinstance(raw, int):
        return round(number)
    plain = round(number, 2)
    if isinstance(raw, float):
        return plain
    return f"{plain:g}" if abs(plain) < 1e6 else str(round(plain))


def date_moved(draft: Draft) -> bool:
    """Move an ISO date of the call by up to 30 days; False if there is none."""
    for value in _shuffle_values(draft, "date"):
        text = str(value.raw)
        if (found := _ISO.search(text)) is None:
            continue
        year, month, day = map(int, found.groups())
        if (when := calendar_day((year, month, day))) is None:
            continue
        moved = when + timedelta(draft.rng.choice((-7, -2, -1, 1, 2, 3, 7, 30)))
        if draft.put(value, text.replace(found[0], moved.isoformat())):
            return True
    return False


def time_moved(draft: Draft) -> bool:
    """Move a time such as `14:30` by half an hour to twelve hours; False if there is none."""
    for value in _shuffle_values(draft, "date"):
        text = str(value.raw)
        if (found := _CLOCK.search(text)) is None:
            continue
        minutes = int(found[1]) * 60 + int(found[2])
        minutes = (minutes + draft.rng.choice((-120, -60, -30, 30, 60, 120, 720))) % 1_440
        moved = f"{minutes // 60:02d}:{minutes % 60:02d}"
        if draft.put(value, text.replace(found[0], moved, 1)):
            return True
    return False


def invent_value(draft: Draft) -> bool:
    """Replace an id, mail address or number in place by one unseen in the draft; False if none."""
    for value in _shuffle_values(draft, "id", "mail", "number"):
        if value.kind == "number":
            size = max(1, len(str(int(abs(value.number or 0)))))
            new: Any = _as_number(float(draft.rng.randrange(10 ** (size - 1), 10**size)), value.raw)
        else:
            new = reshuffle(str(value.raw), draft.rng)
        if str(new).lower() not in _all_text(draft) and draft.put(value, new):
            return True
    return False


def reshuffle(text: str, rng: random.Random) -> str:
    """Return `text` with its digits and capitals redrawn; in a mail address small letters too.

    The domain after the @ stays: `ann7@x.org` gives `qrw3@x.org`.
    """
    local, at, domain = text.partition("@")
    letters = [
        rng.choice(string.digits) if c.isdigit()
        else rng.choice(string.ascii_lowercase) if c.islower() and at
        else rng.choice(string.ascii_uppercase) if c.isupper()
        else c
        for c in local
    ]  # fmt: skip
    return "".join(letters) + at + domain


def _all_text(draft: Draft) -> str:
    """Return the texts of users, results, rules and the agent, joined by line breaks."""
    s = draft.sources
    return "\n".join((s.users.text, s.results.text, s.rules.text, s.own))


_STANDINS = {
    "id": ("123", "12345", "ID_HERE", "<id>", "unknown", "your_id", "abc123", "00000"),
    "mail": ("user@example.com", "john.doe@example.com", "name@company.com", "<email>"),
    "path": ("path/to/file", "/path/to/target", "file.txt"),
    "name": ("John Doe", "N/A", "string", "<name>", "unknown", "placeholder"),
    "date": ("YYYY-MM-DD", "2000-01-01", "<date>", "tomorrow's date"),
}


def placeholder(draft: Draft) -> bool:
    """Replace a text value by a placeholder such as `<id>`; False if there is none."""
    for value in _shuffle_values(draft, *_STANDINS):
        new = draft.rng.choice(_STANDINS[value.kind])
        if isinstance(value.raw, str) and draft.put(value, new):
            return True
    return False


def swap_arguments(draft: Draft) -> bool:
    """Swap two unequal arguments of one type, preferably of one kind; False without such a pair."""
    names = [v.path for v in draft.values if v.path in draft.arguments and v.kind != "flag"]
    pairs = [
        (a, b)
        for at, a in enumerate(names)
        for b in names[at + 1 :]
        if type(draft.arguments[a]) is type(draft.arguments[b])
        and draft.arguments[a] != draft.arguments[b]
        and not isinstance(draft.arguments[a], list | dict)
    ]
    alike = [p for p in pairs if _kind_at(p[0], draft) == _kind_at(p[1], draft)] or pairs
    if not alike:
        return False
    a, b = draft.rng.choice(alike)
    draft.arguments[a], draft.arguments[b] = draft.arguments[b], draft.arguments[a]
    return True


def _kind_at(path: str, draft: Draft) -> str:
    return next((v.kind for v in draft.values if v.path == path), "")


def required_dropped(draft: Draft) -> bool:
    """Remove an argument that the tool's schema requires; False if the call has none."""
    tool = draft.view.tools.get(str(draft.call.get("name")))
    names = [n for n in (tool.required if tool else ()) if n in draft.arguments]
    if not names:
        return False
    del draft.arguments[draft.rng.choice(names)]
    return True


def request_repeated(draft: Draft) -> bool:
    """Replace a text value by the user's request, else (under 21 characters) return False."""
    request = draft.view.request.strip()[:300]
    for value in _shuffle_values(draft, "id", "mail", "name", "path"):
        if isinstance(value.raw, str) and len(request) > 20 and draft.put(value, request):
            return True
    return False


def _shuffle_values(draft: Draft, *kinds: str) -> list[Value]:
    """Return the call's values of these kinds, such as `id` and `number`, in random order."""
    values = [v for v in draft.values if v.kind in kinds]
    draft.rng.shuffle(values)
    return values


# --- tools and steps ----------------------------------------------------------------------------


def wrong_tool(draft: Draft) -> bool:
    """Call another, preferably similar tool that can take the arguments; False if none can."""
    name, passed = str(draft.call.get("name")), set(draft.arguments)
    own = draft.view.tools.get(name)
    fitting: list[tuple[Any, Json]] = []
    others: list[tuple[Any, Json]] = []
    for tool in draft.view.tools.values():
        if tool.name == name:
            continue
        renamed = _rename_arguments(draft.arguments, tool.properties, tool.required)
        if renamed is not None:
            alike = own is not None and len(own.words & tool.words) >= 2
            (fitting if alike or passed <= set(tool.properties) else others).append((tool, renamed))
    if not (fitting or others):
        return False
    tool, renamed = draft.rng.choice(fitting or others)
    draft.call["name"] = tool.name
    draft.arguments.clear()
    draft.arguments.update(renamed)
    return True


def _rename_arguments(
    arguments: Json, properties: Mapping[str, Any], required: Sequence[str]
) -> Json | None:
    """Return the arguments that a tool takes; a dropped one's value fills a missing required one.

    None if the tool requires more than one that is missing, or no value was dropped to fill it.
    """
    kept = {name: value for name, value in arguments.items() if name in properties}
    missing = [name for name in required if name not in kept]
    spare = [value for name, value in arguments.items() if name not in kept]
    if len(missing) > len(spare) or len(missing) > 1:
        return None
    return kept | dict(zip(missing, spare, strict=False))


def repeat_call(draft: Draft) -> bool:
    """Insert the same call, with success, before; False for a look-up without earlier results."""
    name = str(draft.call.get("name"))
    results = [c.result for c in draft.view.earlier if c.name == name and c.result]
    result = results[-1] if results else draft.rng.choice(_DONE)
    if is_read(name) and not results:
        return False
    _append_step(draft, result)
    return True


def error_ignored(draft: Draft) -> bool:
    """Insert the same call with a refusal just before it; False for a call that only reads."""
    if is_read(str(draft.call.get("name"))):
        return False
    _append_step(draft, draft.rng.choice(_FAILED))
    return True


def _append_step(draft: Draft, result: str) -> None:
    """Append a copy of the call, and its result, to the messages."""
    function = dict(draft.call) | {"arguments": json.dumps(draft.arguments, ensure_ascii=False)}
    call = {"id": f"call_{len(draft.messages)}x", "type": "function", "function": function}
    draft.messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


def look_up_left_out(draft: Draft) -> bool:
    """Remove the results that show a value, and their calls, so that the value appears nowhere.

    False if every id, mail address and path is in the user's or the rules' text, or in no
    result.
    """
    texts = [
        v.text for v in draft.values
        if v.kind in ("id", "mail", "path") and len(v.text) > 2
        and v.text in draft.sources.results.text and v.text not in draft.sources.users.text
        and v.text not in draft.sources.rules.text
    ]  # fmt: skip
    if not texts:
        return False
    text = draft.rng.choice(texts)
    kept: list[Json] = []
    dropped: set[Any] = set()
    for message in draft.messages:
        if (
            message.get("role") in ("tool", "function")
            and text in str(message.get("content")).lower()
        ):
            dropped.add(message.get("tool_call_id"))
        else:
            kept.append(message)
    if None in dropped:
        return False
    draft.messages[:] = [
        m for m in (_without_calls(m, dropped, text) for m in kept) if m is not None
    ]
    return True


def _without_calls(message: Json, dropped: set[Any], text: str) -> Json | None:
    """Return a message without calls whose results are removed, or that have the value.

    Returns None if no call is left.
    """
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    remaining = [c for c in calls if c.get("id") not in dropped and text not in str(c).lower()]
    if len(remaining) == len(calls):
        return message
    return {**message, "tool_calls": remaining} if remaining else None


def put_request(draft: Draft, request: str) -> bool:
    """Replace the content of the user's last message by `request`; False if there is none."""
    for at in range(len(draft.messages) - 1, -1, -1):
        if draft.messages[at].get("role") == "user":
            draft.messages[at] = {**draft.messages[at], "content": request}
            return True
    return False


def decline_call(draft: Draft) -> bool:
    """Insert an offer to make the call, and the user's no; False for a call that only reads."""
    return insert_question(draft, _NO)


def insert_question(draft: Draft, answers: Sequence[str]) -> bool:
    """Append an offer to make the call and one of `answers`; False for a call that only reads."""
    if is_read(str(draft.call.get("name"))):
        return False
    draft.messages += [
        {"role": "assistant", "content": draft.rng.choice(_OFFERS)},
        {"role": "user", "content": draft.rng.choice(answers)},
    ]
    return True


# --- rules --------------------------------------------------------------------------------------


def limit_passed(draft: Draft) -> bool:
    """Add a rule with a limit below a number of the call; False without a positive number."""
    return add_limit(draft, (0.3, 0.5, 0.8))


def add_limit(draft: Draft, shares: Sequence[float]) -> bool:
    """Add a rule whose limit is a number of the call times one of `shares`.

    Shares above 1 give a limit that the call keeps, others one that it breaks. False if none
    suits.
    """
    for value in _shuffle_values(draft, "number"):
        limit = (value.number or 0.0) * draft.rng.choice(shares)
        limit = round(limit) if limit >= 3 else round(limit, 1)
        is_inside = shares[0] > 1
        if limit <= 0 or (limit >= (value.number or 0.0)) != is_inside:
            continue
        name = " ".join(name_words(value.path.rpartition(" ")[2])) or "amount"
        _add_rule(
            draft,
            draft.rng.choice(_LIMITS).format(
                name=name, tool=_tool_in_words(draft), limit=f"{limit:g}"
            ),
        )
        return True
    return False


def forbid_tool(draft: Draft) -> bool:
    """Add a rule that forbids the tool; False for a call that only reads."""
    if is_read(str(draft.call.get("name"))):
        return False
    _add_rule(draft, draft.rng.choice(_FORBIDDEN).format(tool=_tool_in_words(draft)))
    return True


def _tool_in_words(draft: Draft) -> str:
    return " ".join(name_words(str(draft.call.get("name"))))


def _add_rule(draft: Draft, rule: str) -> None:
    """Insert a sentence into the system message at random, or add one as the first message."""
    first = draft.messages[0] if draft.messages else {}
    if first.get("role") in ("system", "developer") and isinstance(first.get("content"), str):
        lines = re.split(r"(?<=[.!?])\s+", first["content"])
        lines.insert(draft.rng.randrange(len(lines) + 1), rule)
        draft.messages[0] = {**first, "content": " ".join(lines)}
    else:
        draft.messages.insert(0, {"role": "system", "content": rule})


KINDS: dict[str, Callable[[Draft], bool]] = {
    "other entity": other_entity,
    "number moved": number_moved,
    "told number": number_of_context,
    "unit changed": unit_changed,
    "date moved": date_moved,
    "time moved": time_moved,
    "invented": invent_value,
    "placeholder": placeholder,
    "swapped": swap_arguments,
    "required dropped": required_dropped,
    "request repeated": request_repeated,
    "wrong tool": wrong_tool,
    "repeated": repeat_call,
    "error ignored": error_ignored,
    "look up left out": look_up_left_out,
    "declined": decline_call,
    "limit passed": limit_passed,
    "forbidden": forbid_tool,
    "opposed value": opposed_value,
    "opposed tool": opposed_tool,
    "parent folder": parent_folder,
    "measure changed": measure_changed,
}
