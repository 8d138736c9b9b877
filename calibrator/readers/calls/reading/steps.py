"""The traits of a call beside the earlier calls: reads, writes, errors, repetitions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.values import name_words, word_set

READS = word_set(
    "get list find search read look lookup check view show query fetch describe count calculate"
    " compute retrieve browse display convert compare estimate verify validate is has status info"
    " information inspect select track scan open ls cat pwd grep tail head diff wc sort cd du"
)
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|failed|failure|invalid|not found|no such|denied|cannot"
    r"|could not|unable|unknown|missing|refused|forbidden|does not exist|not available)\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"^\s*(?:\[\s*\]|\{\s*\}|null|none|no \w+ (?:found|match))", re.IGNORECASE)


def is_read(name: str) -> bool:
    """Return whether a tool looks something up and changes nothing, as far as its name says.

    The first known verb of the name decides: `get_order` reads. False without one.
    """
    words = name_words(name)
    first = [word for word in words if word in READS or word in CHANGES]
    return bool(first) and first[0] in READS


CHANGES = word_set(
    "create add make new book schedule post send delete remove cancel drop clear update change"
    " modify edit set rename move write put insert pay transfer refund reply forward start stop"
    " restart reset close lock unlock enable disable assign approve reject submit place order buy"
    " sell reserve register save upload copy share publish complete mark archive adjust press fill"
    " merge commit push deploy scale increase decrease release grant revoke reschedule return"
    " exchange invite notify message mkdir rm mv cp touch echo activate deactivate purchase"
)


def is_failure(result: str) -> bool:
    """Return whether the beginning of a result says that the call failed: `Error: not found`."""
    return bool(_ERROR.search(result[:600]))


def found_nothing(result: str) -> bool:
    """Return whether a result is an empty list or object, null, or `No orders found`."""
    return bool(_NOTHING.match(result[:100]))


def steps_of(call: Call, view: View) -> dict[str, float]:
    """Return traits (name -> number) of a call compared with the earlier calls.

    They are 0.0 or 1.0, shares, or logs of counts: whether the same call was made (after
    success, after an error), whether a change comes without a look-up before, reads, writes and
    failures since the user's last turn (`.._now`).
    """
    now = [c for c in view.earlier if c.turn == view.user_turns]
    before = view.earlier
    same = [c for c in before if c.key == call.key and c.name == call.name]
    tool_before = [c for c in before if c.name == call.name]
    last = before[-1] if before else None
    alike = max((_alikeness(call, c) for c in tool_before[-12:]), default=0.0)
    writes_now = [c for c in now if c.name and not is_read(c.name)]
    reads_now = [c for c in now if c.name and is_read(c.name)]
    is_write = not is_read(call.name)
    fixed = [c for c in tool_before[-3:] if is_failure(c.result)]
    return {
        "is_write": float(is_write),
        "write_unlooked": float(is_write and not any(c.result for c in before)),
        "write_unlooked_now": float(is_write and not reads_now),
        "same_again": float(bool(same)),
        "same_again_after_success": float(any(not is_failure(c.result) for c in same)),
        "same_again_after_error": float(any(is_failure(c.result) for c in same)),
        "same_now": float(any(c.turn == view.user_turns for c in same)),
        "tool_again": math.log1p(len(tool_before)),
        "tool_again_now": math.log1p(sum(c.turn == view.user_turns for c in tool_before)),
        "alike_earlier": alike,
        "alike_write": alike * is_write,
        "repaired": float(bool(fixed)),
        "writes_now": math.log1p(len(writes_now)),
        "reads_now": math.log1p(len(reads_now)),
        "last_failed": float(last is not None and is_failure(last.result)),
        "last_nothing": float(last is not None and found_nothing(last.result)),
        "failures_now": math.log1p(sum(is_failure(c.result) for c in now)),
        "nothing_now": math.log1p(sum(found_nothing(c.result) for c in now)),
        "nothing_share": _share_of_nothing(now),
    }


def _share_of_nothing(calls: Sequence[Call]) -> float:
    """Return the share of the calls that look up which failed or found nothing; or 0.0."""
    looked = [c for c in calls if c.name and is_read(c.name)]
    return (
        sum(found_nothing(c.result) or is_failure(c.result) for c in looked) / len(looked)
        if looked
        else 0.0
    )


def _alikeness(call: Call, other: Call) -> float:
    """Return the share of arguments, 0 to 1, that two calls of a tool have in common."""
    own, others = set(call.key.split(";")), set(other.key.split(";"))
    return len(own & others) / max(1, len(own | others))


# --- the schema ---------------------------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "float": (float, int), "number": (float, int),
    "boolean": (bool,), "array": (list,), "tuple": (list,), "object": (dict,), "dict": (dict,),
}  # fmt: skip


def schema_of(call: Call, tool: Tool | None, view: View) -> dict[str, float]:
    """Return traits (name -> number) of a call compared with the schema of its tool.

    For example missing and unknown arguments, wrong types, values that are not listed. If
    `tool` is None all are 0 except `unknown_tool`, which is 1 if other tools were offered.
    """
    if tool is None:
        return {**dict.fromkeys(_SCHEMA, 0.0), "unknown_tool": float(bool(view.tools))}
    arguments, known, required = call.arguments, tool.properties, tool.required
    typed = [(p, arguments[n]) for n, p in known.items() if n in arguments and isinstance(p, dict)]
    chosen = [(p["default"], value) for p, value in typed if "default" in p]
    return {
        "unknown_tool": 0.0,
        "required_missing": _part(sum(name not in arguments for name in required), len(required)),
        "argument_unknown": float(bool(known) and any(name not in known for name in arguments)),
        "type_wrong": float(any(not _fits(p, value) for p, value in typed)),
        "choice_wrong": float(any(_off_list(p, value) for p, value in typed)),
        "empty": _part(
            sum(v in ("", None) or v in ([], {}) for v in arguments.values()), len(arguments)
        ),
        "optional_given": _part(sum(name not in required for name in arguments), len(known)),
        "optional_left": 1 - _part(len(arguments), len(known)),
        "default_given": _part(sum(value == usual for usual, value in chosen), len(typed)),
        "default_departed": _part(sum(value != usual for usual, value in chosen), len(typed)),
        "unreadable": float(not call.is_readable),
    }


def _part(count: int, of: int) -> float:
    """Return count / of; 0.0 if `of` is 0."""
    return count / max(1, of)


_SCHEMA = (
    "unknown_tool", "required_missing", "argument_unknown", "type_wrong", "choice_wrong", "empty",
    "optional_given", "optional_left", "default_given", "default_departed", "unreadable",
)  # fmt: skip


def _fits(schema: dict[str, object], value: object) -> bool:
    """Return whether a value has its schema's type; True for None and without a known type."""
    wanted = _TYPES.get(str(schema.get("type")).lower())
    is_confused = isinstance(value, bool) and wanted is not None and bool not in wanted
    return wanted is None or value is None or (isinstance(value, wanted) and not is_confused)


def _off_list(schema: dict[str, object], value: object) -> bool:
    """Return whether a value is not among those that its schema lists; False without a list."""
    listed = schema.get("enum")
    if not isinstance(listed, list) or isinstance(value, list | dict):
        return False
    return value not in listed
