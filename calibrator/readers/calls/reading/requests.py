"""The traits of a call beside the request: the tool's words, the verb, numbers, dates, thoughts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.sources import Source, Sources
from calibrator.readers.calls.reading.steps import is_read
from calibrator.readers.calls.reading.values import (
    Value,
    calendar_day,
    name_words,
    stem,
    weekdays_in,
    word_set,
    words_in,
)

_CLASSES = {  # verbs that may replace each other
    "add": "add create make new book schedule post open insert register place set up put write"
    " arrange organise organize plan order buy purchase reserve draft compose start",
    "remove": "delete remove cancel drop clear erase discard trash unsubscribe rm revoke void call"
    " withdraw unbook scrap",
    "change": "update change modify edit move set rename reschedule shift adjust push bring replace"
    " correct extend shorten raise lower reassign assign mark switch transfer postpone swap amend",
    "send": "send email mail reply forward message notify tell post share invite write text inform"
    " answer let",
    "look": "get list find search read look check view show query fetch describe count compute how"
    " what when which who display see know many much calculate tell compare any is are",
    "pay": "pay transfer refund charge send deposit top fund wire settle return reimburse",
    "start": "start run launch resume enable activate turn on begin restart press engage",
    "stop": "stop pause halt disable deactivate off end shut suspend turn close kill",
    "lock": "lock secure close",
    "unlock": "unlock open release",
    "approve": "approve accept confirm grant allow",
    "reject": "reject decline deny refuse dismiss",
    "raise": "increase raise add grow up scale more extend turn",
    "lower": "decrease lower reduce down shrink scale less cut turn",
}
_OPPOSITES = (
    ("add", "remove"), ("start", "stop"), ("lock", "unlock"), ("approve", "reject"),
    ("raise", "lower"), ("change", "remove"),
)  # fmt: skip
_CLASS_OF: dict[str, set[str]] = {}
for _class, _listed in _CLASSES.items():
    for _verb in _listed.split():
        _CLASS_OF.setdefault(stem(_verb), set()).add(_class)

_WORD = re.compile(r"[a-z]+")
_YES = re.compile(
    r"^\W*(?:yes|yeah|yep|sure|ok(?:ay)?|please do|go ahead|correct|confirm(?:ed)?"
    r"|that's (?:right|fine)"
    r"|sounds good|do it|perfect|right|agreed|absolutely|exactly)\b", re.IGNORECASE
)  # fmt: skip
_NO = re.compile(r"^\W*(?:no|nope|wait|stop|don't|do not|never mind|nevermind|hold on|not)\b", re.I)
_DONT = re.compile(r"\b(?:do not|don't|never|without|instead of|except|but not|rather than)\b")
_CONDITION = re.compile(r"\b(?:if|unless|otherwise|in case|only)\b")
_QUESTION = re.compile(
    r"^(?:what|when|where|which|who|how|why|is|are|does|do|did|has|have|was|were|will|would i)\b",
)
_HEDGED = re.compile(
    r"\b(?:assum\w+|guess\w*|probably|might|maybe|perhaps|likely|not sure|unclear|placeholder|"
    r"i don't (?:have|know)|let's say|for example|presum\w+|should be|try(?:ing)?)\b", re.I
)  # fmt: skip
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w.-]{1,200}\w")


def verb_classes(words: Sequence[str]) -> set[str]:
    """Return the classes that the words may belong to as verbs: {`remove`} for `delete`."""
    return {name for word in words for name in _CLASS_OF.get(stem(word), ())}


def request_traits(call: Call, tool: Tool | None, view: View, sources: Sources) -> dict[str, float]:
    """Return traits (name -> number) that say whether the request is about this tool.

    They compare words, verbs and values of the call and of the other tools with the request,
    for example `verb_opposite`, 1.0 if the user asked for the contrary of the tool's verb. A
    request of up to 30 characters is read with all turns of the user. `tool` is None for an
    unknown one.
    """
    request = sources.request if len(view.request) > 30 else sources.users
    words = tool.words if tool else words_in(" ".join(name_words(call.name)))
    own = _overlap(words, request)
    parts = set(name_words(call.name))
    others = [t for t in view.tools.values() if t.name != call.name]
    fits = [_overlap(t.words, request) for t in others]
    rarely = _rare_fits(view, request, call.name)
    request_words = _WORD.findall(request.text[-1_500:])
    wanted, does = verb_classes(request_words[:120]), verb_classes(_verbs(call.name))
    return {
        "tool_overlap": own,
        "tool_gap": max(fits, default=0.0) - own,
        "tool_rank": sum(f > own for f in fits) / max(1, len(fits)),
        "rare_gap": rarely,
        "name_overlap": len({stem(w) for w in parts} & request.words) / max(1, len(parts)),
        "verb_agrees": float(bool(wanted & does)),
        "verb_named": float(bool({stem(w) for w in _verbs(call.name)} & request.words)),
        "verb_opposite": float(_is_opposite(wanted, does)),
        "verb_other": float(not wanted & does and _another_agrees(others, wanted, words)),
        "write_for_question": float(
            not is_read(call.name) and bool(_QUESTION.match(view.request.strip().lower()))
        ),
        "read_for_order": float(is_read(call.name) and not wanted & {"look"}),
        "values_asked": _requested_share(call.values, request),
    }


# --- the contrary ------------------------------------------------------------------------------

_PAIRS = (
    "production staging|production test|prod staging|live staging|live test|on off|up down"
    "|left right|north south|east west|morning evening|front back|front rear|high low|higher lower"
    "|public private|enable disable|asc desc|ascending descending|buy sell|credit debit|min max"
    "|open close|open shut|lock unlock|start stop|add remove|increase decrease|raise lower"
    "|approve reject|approve deny|accept decline|grant revoke|grant deny|mute unmute|pin unpin"
    "|follow unfollow|mount unmount|archive restore|block unblock|hide show|activate deactivate"
    "|first last|oldest newest|earliest latest|cheapest dearest|smallest largest|lowest highest"
    "|inbound outbound|import export|arrival departure|old new|upper lower|inside outside"
    "|indoor outdoor|male female|adult child|economy business|monthly yearly|daily weekly"
    "|billing shipping|home work|warmer colder|warm cool|louder quieter|freeze unfreeze"
)
ANTONYMS: dict[str, set[str]] = {}
for _pair in _PAIRS.split("|"):
    _a, _b = _pair.split()
    ANTONYMS.setdefault(_a, set()).add(_b)
    ANTONYMS.setdefault(_b, set()).add(_a)
_HIGHEST = re.compile(r"\b(?:highest|largest|biggest|most|top|newest|latest|maximum|max|best)\b")
_LOWEST = re.compile(r"\b(?:lowest|smallest|least|fewest|oldest|earliest|minimum|min|worst)\b")
_MEASURE = re.compile(r"\b(\d+(?:\.\d+)?)[ -]*([a-z]{3,9})\b")
_SPAN = re.compile(
    r"\b(half an hour|an hour and a half|a quarter of an hour|an hour|a day|a week)\b"
)
_SPANS = {"half an hour": 30, "an hour and a half": 90, "a quarter of an hour": 15, "an hour": 60,
          "a day": 1440, "a week": 10080}  # fmt: skip
_MINUTES = {"minut": 1, "min": 1, "hour": 60, "day": 1440, "week": 10080}
_WHOLE = re.compile(
    r"\brm\b[^|;&]*?\s(?:/|~|\.|\*|\./\*|/\*)(?:\s|$)|\brm\s+-\w*r\w*\s+[^|;&]*(?:/\*|\s/\w)"
    r"|\bkill(?:all)?\s+-9\s+-1\b|\bchmod\s+-R\b|\bfind\s+/\s|\s/\s*$"
)
_FORCED = re.compile(
    r"--force\b|--hard\b|\s-\w*f\w*d|\s-\w*rf|\bpush\b.*\s[:+]\w|--no-verify|-delete\b"
)
_CHANGING = re.compile(
    r"\b(?:rm|mv|kill|killall|chmod|chown|truncate|drop|delete|update|insert|alter|push|reset|clean"
    r"|commit|dd|mkfs)\b|\bsed\s+-i|-delete\b|--remove"
)
_ROWS = re.compile(r"\bdelete\s+from\s+\S|\bupdate\s+\S+\s+set\s")
_TABLE = re.compile(r"\b(?:drop|truncate)\s+(?:table|database|schema)\b|\btruncate\s+\w+")
_LOOKING = re.compile(
    r"^\W*(?:please |can you |could you )?(?:which|what|how|show|list|find|count|who|where|give me"
    r"|tell|print|look|the \w+)\b"
)
_AGGREGATES = {  # aggregate functions of a query, and words that ask for them
    "sum": "sum total revenue turnover together altogether", "avg": "average mean",
    "count": "many count number often", "max": "most highest largest latest maximum top biggest",
    "min": "least lowest smallest earliest minimum min fewest",
}  # fmt: skip


CONTRARY = word_set(  # traits that never raise the confidence in a call
    "contrary_value contrary_tool measure_wrong crossed rows_unbounded rows_loose table_dropped"
    " whole_wiped forced order_turned aggregate_other unfiltered contraries"
)


def contrary_traits(call: Call, view: View, sources: Sources) -> dict[str, float]:
    """Return traits (name -> number) of a call that contradicts the request or goes beyond it.

    Most are 0.0 or 1.0: a value with the opposite in the request, another unit, a value under
    another argument's name, a command or query without a bound, a folder above the named paths.
    `contraries` is the sum of those that are rare alone.
    """
    request = view.request.lower()[-2_000:]
    request_words = set(_WORD.findall(request))
    own = {w for v in call.values[:40] if v.kind != "text" for w in _WORD.findall(v.text[:200])}
    texts = [v.text for v in call.values[:40] if v.kind in ("text", "name", "path")]
    line = "\n".join(texts)[:4_000]
    found = {
        "contrary_value": float(_has_contrary(own, request_words)),
        "contrary_tool": float(_has_contrary(set(name_words(call.name)), request_words)),
        "measure_wrong": _measure_wrong(call, request),
        "crossed": float(_is_crossed(call, view, sources)),
        **_command_traits(line, request, request_words),
    }
    above = any(_is_above(v, sources, request) for v in call.values[:40])
    changing = bool(_CHANGING.search(line)) and bool(_LOOKING.match(request))
    return {
        **found,
        "contraries": sum(found.values()),  # each alone is rare
        "path_above": float(above),
        "changing_for_look": float(changing),
    }


def _command_traits(line: str, request: str, words: set[str]) -> dict[str, float]:
    """Return the traits of commands and queries in the call's texts, each 0.0 or 1.0.

    `line` is the texts, `request` the request in lower case and `words` its words. An example is
    `delete from t` without a condition.
    """
    is_high, is_low = bool(_HIGHEST.search(request)), bool(_LOWEST.search(request))
    has_order = "order by" in line
    is_down = has_order and " desc" in line
    turned = has_order and ((is_high and not is_low and not is_down)
                            or (is_low and not is_high and is_down))  # fmt: skip
    named = [name for name in _AGGREGATES if re.search(rf"\b{name}\s*\(", line)]
    fitting = [name for name in _AGGREGATES if set(_AGGREGATES[name].split()) & words]
    return {
        "rows_unbounded": float(bool(_ROWS.search(line)) and " where " not in line),
        "rows_loose": float(bool(_ROWS.search(line))
                            and bool(re.search(r"where .*(?:like|<>|!=|>|1\s*=\s*1)", line))),
        "table_dropped": float(bool(_TABLE.search(line)) and not words & {"drop", "truncate"}),
        "whole_wiped": float(bool(_WHOLE.search(line))),
        "forced": float(bool(_FORCED.search(line)) and not words & {"force", "forced", "discard"}),
        "order_turned": float(turned),
        "aggregate_other": float(bool(named and fitting) and not {*named} & {*fitting}),
        "unfiltered": float("select" in line and " where " not in line
                            and any(ch.isdigit() for ch in request) and "limit" not in line),
    }  # fmt: skip


def _has_contrary(own: set[str], request_words: set[str]) -> bool:
    """Return whether a word of the call has its opposite (`public`, `private`) in the request.

    False for words that the request has too.
    """
    return any(ANTONYMS[w] & request_words and w not in request_words for w in own if w in ANTONYMS)


def _measure_wrong(call: Call, request: str) -> float:
    """Return 1.0 if a number differs from the request's number in the argument's unit, else 0.0.

    `minutes=30` for `2 hours` is such a one.
    """
    measures: dict[str, set[float]] = {}
    minutes = {float(_SPANS[span]) for span in _SPAN.findall(request)}
    for number, unit in _MEASURE.findall(request)[:40]:
        root = stem(unit)
        measures.setdefault(root, set()).add(float(number))
        if root in _MINUTES:
            minutes.add(float(number) * _MINUTES[root])
    for value in call.values[:40]:
        if value.kind != "number" or value.number is None:
            continue
        for root in {stem(word) for word in name_words(value.path.rpartition(" ")[2])}:
            if root in measures and value.number not in measures[root]:
                return 1.0
            if root in _MINUTES and minutes and value.number * _MINUTES[root] not in minutes:
                return 1.0
    return 0.0


def _is_above(value: Value, sources: Sources, request: str) -> bool:
    """Return whether a value is the folder of paths that were named or listed: `/a` for `/a/b`."""
    text = value.text.rstrip("/")
    if len(text) < 2 or " " in text or value.kind not in ("path", "name", "id"):
        return False
    below = f"{text}/"
    return below in request or below in sources.results.text


def _is_crossed(call: Call, view: View, sources: Sources) -> bool:
    """Return whether a value appeared under another argument's name, and never under its own.

    Read are records of results and earlier calls; the other name must be one of this call.
    """
    plain = [v for v in call.values[:20] if v.kind in ("name", "choice", "id", "path")]
    if len(plain) < 2:
        return False
    places: dict[str, set[str]] = {}
    for record in sources.records[:200]:
        for key, field in list(record.fields.items())[:40]:
            places.setdefault(str(field).lower()[:200], set()).update(name_words(str(key)))
    for earlier in view.earlier[-20:]:
        for key, field in list(earlier.arguments.items())[:40]:
            places.setdefault(str(field).lower()[:200], set()).update(name_words(str(key)))
    names = {v.path: set(name_words(v.path)) for v in plain}
    every = set().union(*names.values())
    for value in plain:
        stood, own = places.get(value.text, set()), names[value.path]
        if stood and not stood & own and stood & (every - own):
            return True
    return False


def _verbs(name: str) -> list[str]:
    """Return a list of the first known verb of a tool's name, else of its first word; may be []."""
    words = name_words(name)
    known = [word for word in words if stem(word) in _CLASS_OF]
    return known[:1] or words[:1]


def _overlap(words: set[str], request: Source) -> float:
    """Return how many words the request shares with a tool's, over the root of their number."""
    return len(words & request.words) / math.sqrt(len(words) + 1)


def _rare_fits(view: View, request: Source, name: str) -> float:
    """Return by how much another tool's words fit the request better than this tool's, -1 to 1.

    A word counts the more, the fewer tools have it. The result is relative to the better of the
    two, 0 if there is no other tool.
    """
    often: dict[str, int] = {}
    for tool in view.tools.values():
        for word in tool.words & request.words:
            often[word] = often.get(word, 0) + 1
    points = {
        t.name: math.fsum(1 / often[word] for word in t.words & request.words)
        for t in view.tools.values()
    }
    own = points.pop(name, 0.0)
    best = max(points.values(), default=0.0)
    return (best - own) / max(best, own, 1e-9) if points else 0.0


def _is_opposite(wanted: set[str], does: set[str]) -> bool:
    """Return whether the request wants a class of verbs and the tool does its opposite."""
    return any(
        (b in wanted and a not in wanted and a in does and b not in does)
        or (a in wanted and b not in wanted and b in does and a not in does)
        for a, b in _OPPOSITES
    )


def _another_agrees(others: Sequence[Tool], wanted: set[str], words: set[str]) -> bool:
    """Return whether a tool for the same things has the wanted verb.

    It must share a third of `words`, the called tool's words.
    """
    return any(
        verb_classes(_verbs(t.name)) & wanted and len(t.words & words) * 3 >= len(words)
        for t in others
    )


def _requested_share(values: Sequence[Value], request: Source) -> float:
    """Return the share of values that the request has; 0.0 without values."""
    compared = [v for v in values if v.kind not in ("flag", "empty")]
    return sum(request.holds(v) for v in compared) / len(compared) if compared else 0.0


# --- numbers, dates, thoughts -------------------------------------------------------------------


def date_traits(call: Call, sources: Sources) -> dict[str, float]:
    """Return traits (name -> 0.0 or 1.0) of dates and times beside the requested ones.

    Examples are `weekday_wrong`, and `order_wrong` for a range that ends before it starts.
    """
    dated = [v for v in call.values if v.days]
    days = [day for v in dated for d in v.days if (day := calendar_day(d)) is not None]
    text = sources.request.text
    weekdays = weekdays_in(text)
    is_named = bool(sources.request.days)
    starts, ends = _range_ends(call, ("start", "from", "min", "after", "begin", "since", "checkin"))
    times = [t for v in call.values for t in v.times]
    request_times = sources.request.times
    today = sources.today
    on_weekday = any(d.weekday() in weekdays for d in days)
    return {
        "weekday_wrong": float(
            bool(weekdays and days and not is_named)
            and not any(d.weekday() in weekdays for d in days)
        ),
        "weekday_right": float(on_weekday),
        "relative_right": float(bool(days) and any(d in sources.relative for d in days)),
        "relative_wrong": float(
            bool(days and sources.relative and not is_named)
            and not any(d in sources.relative for d in days)
        ),
        "named_day_wrong": float(
            is_named and bool(days)
            and not any((d.month, d.day) in {n[1:] for n in sources.request.days} for d in days)
        ),
        "in_past": float(bool(today and days and max(days) < today)),
        "year_off": float(bool(today and days and any(abs(d.year - today.year) > 1 for d in days))),
        "date_unreal": float(any(calendar_day(d) is None and d[0] for v in dated for d in v.days)),
        "order_wrong": float(bool(starts and ends and min(starts) > max(ends))),
        "time_wrong": float(bool(request_times and times and not set(times) & request_times)),
        "time_right": float(bool(request_times and set(times) & request_times)),
        "time_invented": float(bool(set(times) - {0}) and not request_times and not (
            set(times) & (sources.users.times | sources.results.times))),
    }  # fmt: skip


def _range_ends(call: Call, opening: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the starts and the ends of ranges in a call, as texts that sort by time.

    `opening` are words of the names of starts.
    """
    starts, ends = [], []
    for value in call.values:
        if not value.days:
            continue
        words = set(name_words(value.path.rpartition(" ")[2]))
        if words & {*opening}:
            starts.append(value.text)
        elif words & {"end", "to", "max", "before", "until", "checkout", "return"}:
            ends.append(value.text)
    return starts, ends


def leftover_traits(view: View, sources: Sources) -> dict[str, float]:
    """Return traits (name -> number) of requested things that are in no call.

    These are numbers above 2, mail addresses and quotations of the request; earlier calls count
    as calls.
    """
    values = [v for c in view.calls for v in c.values]
    earlier = sources.own
    request_numbers = {n for n in sources.request.numbers if abs(n) > 2}
    used = {v.number for v in values if v.number is not None}
    used |= {float(p) for v in values for d in v.days for p in d}
    used |= {float(t // 60) for v in values for t in v.times} | {
        float(t // 60 % 12) for v in values for t in v.times
    }
    text = " ".join(v.text for v in values)[:20_000]
    left = {n for n in request_numbers - used if f"{n:g}" not in text and f"{n:g}" not in earlier}
    mails = set(_MAIL.findall(sources.request.text))
    quoted = re.findall(
        "[\"'\u201c\u2018]([^\"'\u201c\u201d\u2018\u2019]{3,80})[\"'\u201d\u2019]",
        sources.request.text,
    )
    all_text = text + earlier
    return {
        "numbers_left": min(5.0, len(left)),
        "numbers_left_share": len(left) / len(request_numbers) if request_numbers else 0.0,
        "mails_left": float(any(m not in all_text for m in mails)),
        "quotes_left": sum(q.lower() not in all_text for q in quoted[:10])
        / max(1, len(quoted[:10])),
    }


def turn_traits(view: View, sources: Sources) -> dict[str, float]:
    """Return traits (name -> number) of the last turn, the agent's thought and the conversation.

    Examples are `is_yes`, 1.0 for `yes please`, and `calls`. Lengths and counts, such as `calls`
    and `tools`, are the log of one plus the count.
    """
    request = view.request.strip()
    thought = view.thought
    texts = " ".join(v.text for c in view.calls for v in c.values)[:4_000]
    return {
        "is_yes": float(bool(_YES.match(request)) and len(request) < 200),
        "is_no": float(bool(_NO.match(request))),
        "asked_first": float("?" in view.previous_reply),
        "dont": float(bool(_DONT.search(sources.request.text))),
        "condition": float(bool(_CONDITION.search(sources.request.text))),
        "question": float(request.endswith("?")),
        "request_length": math.log1p(len(request)),
        "request_vague": float(len(words_in(request)) < 4),
        "thought_length": math.log1p(len(thought)),
        "thought_hedged": float(bool(_HEDGED.search(thought))),
        "thought_fits": len(words_in(texts) & words_in(thought)) / max(1, len(words_in(texts))),
        "calls": math.log1p(len(view.calls)),
        "calls_repeat": float(len({c.key + c.name for c in view.calls}) < len(view.calls)),
        "tools": math.log1p(len(view.tools)),
        "steps": math.log1p(view.steps),
        "turns": math.log1p(view.user_turns),
        "earlier": math.log1p(len(view.earlier)),
        "arguments": math.log1p(sum(len(c.values) for c in view.calls)),
        "said_length": math.log1p(len(texts)),
        "rules_length": math.log1p(len(view.rules)),
        "results_length": math.log1p(len(sources.results.text)),
    }  # fmt: skip
