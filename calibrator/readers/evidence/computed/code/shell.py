"""Shell commands and crontab lines of a reply, checked against the request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.calendar.reading import times_in, weekdays
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.text.guarded import compile_guarded

_COMMENT: Final = re.compile(r"(?m)(?:^|\s)#[^\n]*$")
_STAGE: Final = re.compile(r"(?<!\|)\|(?!\|)&?")
_COMMAND: Final = re.compile(r"&&|\|\||;|\n")
_EARLY_DELETE: Final = re.compile(
    r"\bfind\b[^|;\n]{0,200}?\s-delete\b[^|;\n]{0,200}?\s-(?:type|i?name|mtime|mmin|size|newer|empty|i?path"
    r"|user|perm|regex)\b"
)
_LISTED: Final = re.compile(r"\bfor\s+(?P<n>\w+)\s+in\s+(?:\$\(\s*(?:ls|find)\b|`\s*(?:ls|find)\b)")
_LOOP: Final = re.compile(r"\bfor\s+(?P<n>\w+)\s+in\s+[^;\n]{0,100}[*?][^;\n]{0,100}[;\n]")
_OVER_FILES: Final = re.compile(r"\b(?:mv|cp|rm|cat|convert|ffmpeg|gzip|tar|sed|touch|chmod)\b")
_DOTS: Final = re.compile(r"\bfor\s+\w+\s+in\s+\d+\.\.\d+")
_ASSIGNS: Final = re.compile(r"(?m)^[ \t]*[A-Za-z_]\w*\s+=\s*[^=\s]|^[ \t]*\$[A-Za-z_]\w*=[^=]")
_IS_SHELL: Final = re.compile(r"^#!/|\$\(|\b(?:echo|done|fi|export|grep|sed|sudo)\b", re.MULTILINE)
_BRACKET: Final = re.compile(
    r"\b(?:if|while)\s+\[{1,2}[^\s\[]|\b(?:if|while)\s+!?\s*\[[^\[\]\n]*[^\s\]]\]\s*;"
)
_SAME_FILE: Final = re.compile(
    r"\b(?:sort|uniq|grep|sed|awk|cut|tr|head|tail|cat|jq)\b[^|;&\n>]{0,200}?\s"
    r"(?P<f>[\w./-]*\w\.\w+)\s*(?:\|[^;\n>]{0,200})?"
    r"(?<![>2&])>\s*(?P<g>[\w./-]+)(?=\s|$)"
)
_WIDE_REMOVAL: Final = re.compile(
    r"\brm\s+(?:-\w+\s+)*-\w*r\w*\s+(?:-\w+\s+)*(?:--\s+)?(?P<t>/|~|/\*|~/\*|\*|\.|\./\*|\$HOME/?"
    r"|/(?:etc|usr|var|home|bin|lib|boot)/?\*?|\"?\$\{?\w+\}?\"?/\*?)(?=\s|;|$)"
)
_SPACES: Final = re.compile(r"\b(?:spaces?|blanks?|leerzeichen|espacios|espaces)\b", re.IGNORECASE)
_MOST: Final = re.compile(
    r"\b(?:most|top|highest|largest|biggest|häufigst\w*|frequent)\b", re.IGNORECASE
)
_OLDER: Final = re.compile(r"\b(?:older|more than|over|not (?:been )?modified)\b", re.IGNORECASE)
_NEWER: Final = re.compile(
    r"\b(?:newer|less than|within|in the last|changed in|modified in|last \d+)\b", re.IGNORECASE
)
_TIME: Final = re.compile(r"-(?P<k>mtime|mmin|atime|ctime)\s+(?P<n>[+-]?\d+)")
_KEEPS: Final = re.compile(
    r"\b(?:keep\w*|without losing|retain|preserve|don't lose|not lose|still have)\b[^.?!\n]{0,60}"
    r"\b(?:changes?|work|edits?|files?)\b"
    r"|\b(?:behalte\w*|ohne)\b[^.?!\n]{0,40}\bänderungen\b|\bänderungen\b[^.?!\n]{0,40}\bbehalten\b"
    r"|\b(?:mantener|manteniendo|conserv\w+|sin perder)\b[^.?!\n]{0,40}\bcambios\b"
    r"|\b(?:gard\w+|conserv\w+|sans perdre)\b[^.?!\n]{0,40}\b(?:modifications|changements)\b",
    re.IGNORECASE,
)
_LOST_COMMIT: Final = re.compile(
    r"\bgit\s+reset\s+--hard\s+(?:HEAD[~^]\S*|origin/\S+)\s*(?:\n|&&|;)\s*"
    r"git\s+(?:branch|switch\s+-c|checkout\s+-b)\s+(?P<b>[\w./-]+)\s*(?:$|\n|&&|;)"
)
MAX_CRON_REQUEST: Final = 400  # characters
_IS_CRON: Final = compile_guarded(r"\bcron\w*", re.IGNORECASE)
_CRON_FIELD: Final = r"(?:[\d*][\d*/,-]{0,40}|(?:MON|TUE|WED|THU|FRI|SAT|SUN)(?:[-,][A-Z]{3})*)"
_CRON_LINE: Final = re.compile(
    rf"(?<![\w*/,-])({_CRON_FIELD}(?:[ \t]+{_CRON_FIELD}){{4}})(?=[ \t`\"'\n]|$)"
)
_PATH: Final = re.compile(r"\S*/\S+|`[^`\n]{1,200}`|\S+\.(?:sh|py|js|pl|rb)\b")
_EVERY: Final = re.compile(
    r"\b(?:every|all|alle|cada|toutes? les) (?P<n>\d{1,2}|other|second|two|five|ten|fifteen"
    r"|thirty)? ?(?P<u>minutes?|mins?|minuten?|minutos?|hours?|stunden?|horas?|heures?)\b"
    r"|\b(?P<h>hourly)\b",
    re.IGNORECASE,
)
_WORKING: Final = re.compile(
    r"\b(?:week ?days?(?: only)?|work(?:ing|week) ?days?|business days?"
    r"|(?:mon(?:day)?s?) ?(?:to|through|thru|-|–) ?fri(?:day)?s?"
    r"|werktags|wochentags|unter der woche|montags? bis freitags?|entre semana|días laborables"
    r"|(?:de )?lunes a viernes|(?:du )?lundi au vendredi|jours? (?:ouvrés?|de semaine))\b"
    r"(?:\s*\([^()]{0,40}\))?",
    re.IGNORECASE,
)
_WEEKEND: Final = re.compile(
    r"\bweek-?ends?\b|\bwochenenden?\b|\bfines? de semana\b", re.IGNORECASE
)
_FIRST_DAY: Final = re.compile(
    r"\b(?:the )?(?:first|1st)(?: day)? (?:of|in) (?:each|every|the|a) month\b"
    r"|\bmonthly on the 1st\b|\b(?:am )?(?:ersten|1\.)(?: tag)? (?:des|jedes|eines) monats\b"
    r"|\bel (?:primer )?día"
    r" (?:1 )?de cada mes\b|\ble premier (?:jour )?de chaque mois\b|\ble 1er de chaque mois\b",
    re.IGNORECASE,
)
_DAY_OF_MONTH: Final = re.compile(
    r"\b(?:the )?(?P<d>\d{1,2})(?:st|nd|rd|th) (?:day )?of (?:each|every|the) month\b",
    re.IGNORECASE,
)
_MORNING: Final = re.compile(
    r"\b(?P<n>\d{1,2}) (?:o'clock )?(?P<w>in the (?:morning|afternoon|evening)|uhr (?:morgens|früh)"
    r"|de la mañana|de la tarde|du matin|du soir|at night)\b",
    re.IGNORECASE,
)
_UNCLEAR: Final = re.compile(
    r"\b(?:last|except|not|between|from|until|while|but|second|third|quarter\w*|year\w*|twice|except"
    r"|half|time ?zone|utc|reboot|both|january|february|march|april|june|july|august|september"
    r"|october|november|december|explain|mean|what does)\b",
    re.IGNORECASE,
)
_STEPS: Final = {"other": 2, "second": 2, "two": 2, "five": 5, "ten": 10, "fifteen": 15,
                   "thirty": 30}  # fmt: skip
_ALL_VALUES: Final = tuple(
    frozenset(range(first, last + 1))
    for first, last in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
)
_SHORT_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELD_NAMES: Final = ("minute", "hour", "day of the month", "month", "day of the week")
CrontabFields = tuple[frozenset[int], ...]


def shell_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield the findings against the shell commands of a reply, in view of the request."""
    text = _COMMENT.sub(" ", code)
    yield from _pipelines(text, request)
    yield from _destruction(text, request)
    yield from _loops(text, request)
    yield from _file_times(text, request)
    if _ASSIGNS.search(text) and _IS_SHELL.search(text):  # not the steps of a calculation
        yield Finding(None, -2.0, "an assignment of the shell has a space or a $ before its =")
    if _BRACKET.search(text):
        yield _certain_bug("the test of the shell lacks a space at its bracket")
    if _DOTS.search(text):
        yield _certain_bug("the loop goes through one word; a range needs braces")


def _certain_bug(reason: str) -> Finding:
    """Return a finding that proves the reply wrong, for this reason."""
    return Finding(False, -MAX_SHIFT, reason)


def _pipelines(text: str, request: str) -> Iterator[Finding]:
    """Find `uniq` without `sort` before it, and counts of `uniq -c` that are sorted as text."""
    for command in _COMMAND.split(text)[:200]:
        stages = [stage.strip() for stage in _STAGE.split(command)]
        for at, stage in enumerate(stages):
            words = stage.split()
            before = stages[:at]
            if (
                words[:1] == ["uniq"]
                and at
                and not any(map(_is_sorting, before))
                and "adjacent" not in request
                and "consecutive" not in request
            ):
                yield _certain_bug("uniq only joins lines that follow each other; sort comes first")
            counts = any(each.startswith("uniq -") and "c" in each.split()[1] for each in before)
            if words[:1] != ["sort"] or not counts:
                continue
            options = "".join(word for word in words[1:] if word.startswith("-"))
            following = stages[at + 1].split()[:1] if at + 1 < len(stages) else []
            if "n" not in options and "h" not in options and "g" not in options:
                yield Finding(None, -2.0, "sort without -n orders counts as text")
            elif "r" not in options and following == ["head"] and _MOST.search(request):
                yield _certain_bug("sort without -r puts the smallest counts first")


def _is_sorting(stage: str) -> bool:
    """Return whether a stage of a pipeline sorts, or counts with awk so that no order is needed."""
    return stage.split()[:1] in (["sort"], ["awk"]) and (
        stage.startswith("sort") or "asort" in stage or "++" in stage
    )


def _destruction(text: str, request: str) -> Iterator[Finding]:
    """Find commands that remove too much, or empty the file that they read.

    An example is `sort a.txt > a.txt`.
    """
    if _EARLY_DELETE.search(text):
        yield _certain_bug("find deletes before it tests; -delete comes last")
    found = _WIDE_REMOVAL.search(text)
    if found and found["t"].strip('"') not in request:
        yield Finding(None, -2.0, f"rm removes all of {found['t']}")
    for each in list(_SAME_FILE.finditer(text))[:20]:
        if each["f"] == each["g"]:
            yield _certain_bug(f"the output empties {each['f']} before it is read")
            break
    if _KEEPS.search(request) and re.search(r"\bgit\s+reset\s+--hard\b", text):
        yield _certain_bug("git reset --hard loses the changes that were to be kept")
    moved = _LOST_COMMIT.search(text)
    if moved and re.search(r"\bbranch\b", request, re.IGNORECASE) and moved["b"] in request:
        yield _certain_bug(f"the branch {moved['b']} is made after the reset, without the commit")
    if re.search(r"\bchmod\s+(?:-R\s+)?0?777\b", text) and "777" not in request:
        yield Finding(None, -1.2, "chmod 777 lets everyone write")


def _loops(text: str, request: str) -> Iterator[Finding]:
    """Find loops that tear file names at spaces, such as `for f in $(ls)` or `rm $f`.

    They are certain bugs if the request mentions spaces.
    """
    strict = bool(_SPACES.search(request))
    if _LISTED.search(text):
        reason = "the loop tears file names apart at spaces"
        yield Finding(False if strict else None, -MAX_SHIFT if strict else -1.2, reason)
    for found in list(_LOOP.finditer(text))[:10]:
        end = text.find("done", found.end())
        body = text[found.end() : end if end > 0 else len(text)][:2_000]
        bare = re.search(rf"(?<![\"\w=])\$\{{?{found['n']}\b", _without_quotes(body))
        if bare and _OVER_FILES.search(body):
            reason = f"${found['n']} without quotes is torn apart at spaces"
            yield Finding(False if strict else None, -MAX_SHIFT if strict else -0.7, reason)
            break
    if strict and re.search(r"\|\s*xargs\s+(?!-0|--null|-d)(?!.*-0)", text):
        yield _certain_bug("xargs tears file names apart at spaces")


def _without_quotes(text: str) -> str:
    """Return a text whose parts in double quotes are empty."""
    return re.sub(r'"[^"\n]*"', '""', text)


def _file_times(text: str, request: str) -> Iterator[Finding]:
    """Find a time of `find` that contradicts the request, such as `-mtime -7` for older files."""
    found = _TIME.search(text)
    if found is None:
        return
    is_older, is_newer = bool(_OLDER.search(request)), bool(_NEWER.search(request))
    sign = found["n"][:1]
    if is_older != is_newer and sign != ("+" if is_older else "-"):
        reason = f"-{found['k']} {found['n']} does not select what is "
        yield _certain_bug(reason + ("older" if is_older else "newer"))


def verify_schedule(exchange: Exchange) -> Verdict | None:
    """Judge the crontab line of a reply, such as `0 9 * * 1-5`, by the times in the request.

    None unless the conversation is about cron, the reply has exactly one such line, and the wanted
    times are clear.
    """
    request = exchange.request
    if len(request) > MAX_CRON_REQUEST or "*" not in exchange.reply:
        return None
    users = [turn.text for turn in exchange.conversation.earlier if turn.role == "user"]
    if not any(_IS_CRON.search(text[:MAX_CRON_REQUEST]) for text in (request, *users[-2:])):
        return None
    lines = {" ".join(line.split()) for line in _CRON_LINE.findall(exchange.reply[:3_000])}
    wanted = wanted_fields(request)
    if len(lines) != 1 or wanted is None:
        return None
    written = read_crontab_line(lines.pop())
    if written is None:
        return Verdict(False, "the crontab line has a value that does not exist", "code")
    for field, one, other in zip(_FIELD_NAMES, written, wanted, strict=True):
        if one != other:
            return Verdict(
                False, f"the {field} is {_format_values(one)}, not {_format_values(other)}", "code"
            )
    return Verdict(True, "the crontab line runs at the requested times", "code")


def _format_values(values: Iterable[int]) -> str:
    """Return values as text, at most eight: `0, 15, 30, 45`; `any` for all values of a field."""
    ordered = sorted(values)
    if frozenset(ordered) in _ALL_VALUES:
        return "any"
    return ", ".join(map(str, ordered[:8]))


def read_crontab_line(line: str) -> CrontabFields | None:
    """Return the sets of values of the five fields of a crontab line; Sunday is 0.

    None if a field is malformed or has a value out of range.
    """
    parts = [
        _field_values(text.lower(), *pair)
        for text, pair in zip(line.split(), _field_bounds(), strict=True)
    ]
    found = [part for part in parts if part]
    if len(found) != len(parts):
        return None
    found[4] = frozenset(day % 7 for day in found[4])
    return tuple(found)


def _field_bounds() -> list[tuple[int, int]]:
    """Return the least and the greatest value of each field; 7 is allowed for Sunday."""
    return [(min(each), max(each)) for each in _ALL_VALUES[:4]] + [(0, 7)]


def _field_values(text: str, low: int, high: int) -> frozenset[int] | None:
    """Return the values of one field such as `*/15` or `mon-fri`, between `low` and `high`.

    None if it is malformed, empty or out of range.
    """
    for number, name in enumerate(_SHORT_DAYS):
        text = text.replace(name, str(number))
    found: set[int] = set()
    for part in text.split(","):
        read = re.fullmatch(r"(?P<a>\*|\d+)(?:-(?P<b>\d+))?(?:/(?P<s>\d+))?", part)
        if read is None or read["s"] == "0":
            return None
        first = low if read["a"] == "*" else int(read["a"])
        last = int(read["b"]) if read["b"] else high if read["a"] == "*" or read["s"] else first
        if read["a"] == "*" and high == 7:
            last = 6
        if not low <= first <= last <= high:
            return None
        found |= set(range(first, last + 1, int(read["s"] or 1)))
    return frozenset(found)


def wanted_fields(request: str) -> CrontabFields | None:
    """Return the sets of values of the five crontab fields that a request wants; Sunday is 0.

    `every weekday at 9 am` gives minute 0, hour 9, days 1 to 5. None if that is not clear.
    """
    text = _PATH.sub(" ", request)
    if _UNCLEAR.search(text):
        return None
    fields = list(_ALL_VALUES)
    text = _take_days(text, fields)
    every = _EVERY.search(text)
    text = text if every is None else text[: every.start()] + " " + text[every.end() :]
    early = _MORNING.search(text)
    if early:
        late = not re.search(r"morning|mañana|matin|morgens|früh", early["w"], re.IGNORECASE)
        minutes = [(int(early["n"]) % 12 + 12 * late) * 60]
        text = text[: early.start()] + " " + text[early.end() :]
    else:
        times = times_in(text)
        minutes = [time.minutes for time in times]
        for time in reversed(times):
            text = text[: time.start] + " " + text[time.end :]
    if any(character.isdigit() for character in text):
        return None
    if every is not None and not minutes:
        number = (every["n"] or "1").casefold()
        step = _STEPS.get(number) or int(number)
        if not step:
            return None
        is_hour = every["h"] or every["u"].casefold().startswith(("h", "stunde"))
        fields[0] = frozenset([0]) if is_hour else frozenset(range(0, 60, step))
        fields[1] = frozenset(range(0, 24, step)) if is_hour else fields[1]
    elif every is None and len(minutes) == 1:
        fields[0], fields[1] = frozenset([minutes[0] % 60]), frozenset([minutes[0] // 60 % 24])
    else:
        return None
    return tuple(fields)


def _take_days(text: str, fields: list[frozenset[int]]) -> str:
    """Set the fields of the days that a text names, in place, and return the text without them.

    The name of a single weekday stays in the text.
    """
    for pattern, days in ((_WORKING, range(1, 6)), (_WEEKEND, (0, 6))):
        if pattern.search(text):
            fields[4] = frozenset(days)
            return pattern.sub(" ", text)
    if _FIRST_DAY.search(text):
        fields[2] = frozenset([1])
        return _FIRST_DAY.sub(" ", text)
    found = _DAY_OF_MONTH.search(text)
    if found:
        fields[2] = frozenset([int(found["d"])])
        return _DAY_OF_MONTH.sub(" ", text)
    words = {word.rstrip("s"): word for word in re.findall(r"[^\W\d_]+", text.casefold())}
    named = {weekdays()[word] for word in {*words, *words.values()} if word in weekdays()}
    if named:
        fields[4] = frozenset((day + 1) % 7 for day in named)
    return text
