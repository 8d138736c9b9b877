"""The check of a call against the request: the choice, the direction, no more than was named.

Each check reports only if the user's own words settle the matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from calibrator.readers.calls.notes import flags
from calibrator.readers.calls.notes.chat_text import ChatText, holds_token
from calibrator.readers.calls.notes.words import ALIASES, KIN
from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.requests import ANTONYMS, verb_classes
from calibrator.readers.calls.reading.steps import is_read
from calibrator.readers.calls.reading.values import Value, name_words, stem, word_set

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_NOT = word_set("not dont never without no doesnt avoid except skip nobody nothing neither nor"
    " instead"
                " disable disabled deactivate stop off cannot")  # fmt: skip
_NO_CHANGE = re.compile(
    r"\b(?:change|touch|modify|do) nothing\b|\b(?:only|just) (?:look|read|check)\b|\bread[- ]only\b"
    r"|\b(?:don't|do not|without) (?:chang|touch|modify|do)\w* (?:anything|any)\b"
)
_PAIRS_OF_ENDS = (
    ("start", "end"), ("from", "to"), ("first", "last"), ("begin", "finish"),
    ("departure", "return"), ("since", "until"), ("after", "before"), ("min", "max"),
    ("in", "out"), ("checkin", "checkout"), ("departure", "arrival"),
)  # fmt: skip
_FROM = word_set(
    "from source origin src sender departure payer debit old previous"
    " lender seller giver gives exporter pick pickup collect"
)
_TO = word_set(
    "to target destination dest dst recipient receiver arrival into payee credit new"
    " borrower buyer importer bring deliver dropoff"
)
_ALL = re.compile(r"\b(?:all|every|everything|everyone|everybody|entire|whole|any|each|wipe)\b")
_PURE_LOOK = re.compile(
    r"^\W*(?:(?:please|can you|could you|would you|hey|hi|hello|ok|and|also|just|now)\W+)*"
    r"(?:which|what|how|show|list|find|count|who|when|where|give me|tell me|print|look|check|see"
    r"|display|search|summari[sz]e|read|is there|are there|do we|do i|does|did|has|have)\b"
)
_CONTRAST = re.compile(
    r"\b(?:rather than|instead of|in place of|as opposed to|no longer)\b[^,.;!?\n]{1,60}"
)
MOST_WORDS = 400  # last words of the request that are read


def is_negation(word: str) -> bool:
    """Return whether a word negates what follows, such as `without` or `don't`."""
    return word in _NOT or word.endswith("n't")


def words_of(text: str) -> list[str]:
    """Return the last 400 words of a text, in lower case, in order."""
    return _WORD.findall(text.lower())[-MOST_WORDS:]


def other_choice(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, the named choice) of arguments with another choice than the user named.

    For `make her a viewer` and `role="editor"` the choice is `viewer`.
    """
    request = words_of(_CONTRAST.sub(" ", chat.view.request.lower()))
    own = {stem(word) for word in name_words(call.name)}  # "close it" names no state
    for value in call.values[:30]:
        choices = _choices(tool, value)
        if len(choices) < 2 or not isinstance(value.raw, str):
            continue
        wanted = flags.other_moment(chat.view.request, value.raw, choices)
        named = [wanted] if wanted else [each for each in choices if _is_named(each, request, own)]
        if named and value.raw not in named and (wanted or not _is_named(value.raw, request, own)):
            yield value.path, str(named[0])[:60]


def _choices(tool: Tool | None, value: Value) -> Sequence[str]:
    """Return the values that a tool's schema or its description allows for an argument, or [].

    A description lists them in quotes or as `a, b or c`, and must have the call's own value.
    """
    schema: object = tool.properties.get(value.path.partition(" ")[0]) if tool else None
    if isinstance(schema, Mapping) and isinstance(schema.get("items"), Mapping):
        schema = schema["items"]
    listed = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(listed, list):
        return [each for each in listed[:50] if isinstance(each, str)]
    described = schema.get("description") if isinstance(schema, Mapping) else None
    if not isinstance(described, str) or not isinstance(value.raw, str):
        return []
    named = re.findall(r"[\"'`]([\w -]{2,30})[\"'`]", described[:500])
    listed = named or re.findall(r"[a-z_-]{3,20}", _alternatives(described[:500].lower()))
    return listed if value.raw in listed else []


def _alternatives(described: str) -> str:
    """Return the part of a description that lists words: `a, b or c`, `a | b | c`; or ""."""
    found = re.search(r"((?:[a-z_-]+\s*(?:,|/|\||\bor\b)\s*)+(?:or\s+)?[a-z_-]+)", described)
    return found[1].replace(" or ", " ") if found else ""


def _is_named(choice: str, request: list[str], own: set[str]) -> bool:
    """Return whether the user named a choice, in any of its forms, and did not rule it out.

    `request` are the words of the request; `own` are stems of the tool's name, which name no
    choice.
    """
    wanted = [w for w in _WORD.findall(choice.lower().replace("_", " ")) if len(w) > 1]
    if not wanted:
        return False
    for word in wanted:
        kin = ({stem(each) for each in KIN.get(word, ())} - own) | {stem(word)}
        places = [at for at, each in enumerate(request) if stem(each) in kin]
        free = [
            at for at in places if not any(is_negation(w) for w in request[max(0, at - 3) : at])
        ]
        if not free:
            return False
    return True


def wrong_way(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield the paths of arguments whose start is the end that the user named, or the reverse.

    In `from Rome to Oslo` these are `origin="Oslo"` and `destination="Rome"`. Only calls with
    both are checked, because `from` may be any preposition elsewhere.
    """
    ends: dict[str, list[Value]] = {"from": [], "to": []}
    for value in call.values[:20]:
        names = set(name_words(value.path.rpartition(" ")[2]))
        is_from, is_to = bool(names & (_FROM | {"by"})), bool(names & _TO)
        if is_from != is_to and value.kind not in ("flag", "empty", "text", "date", "number"):
            ends["from" if is_from else "to"].append(value)
    if len(ends["from"]) != 1 or len(ends["to"]) != 1:
        return
    text = chat.view.request.lower()[-4_000:]
    if _BOTH_WAYS.search(text):
        return
    own = {side: _names_of(values[0], chat) for side, values in ends.items()}
    for side, other in (("from", "to"), ("to", "from")):
        names_only = [n for n in own[side] if n not in own[other]]
        places = {place for name in names_only for place in _places(name, text)}
        if places == {other}:
            yield ends[side][0].path


_BOTH_WAYS = re.compile(r"\b(?:round[- ]?trip|return|back|both ways|swap|exchange|reverse)\b")


def moved_from(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield the paths of arguments that still have the old value, X of "from X to Y".

    Nothing if an argument of the call has Y, or if the argument is the one for the old value.
    """
    used = " ".join(value.text for value in call.values[:20])
    for old, new in _FROM_TO.findall(chat.view.request.lower()[-2_000:])[:10]:
        if holds_token(used, new) or old == new:
            continue
        for value in call.values[:20]:
            names = set(name_words(value.path))
            if value.kind in ("name", "id", "choice") and value.text == old and not names & _FROM:
                yield value.path


def left_out(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield the paths of arguments that name what the request leaves out ("not for Milo").

    Every mention of the name must leave it out.
    """
    text = chat.view.request.lower()[-2_000:]
    for value in call.values[:30]:
        is_old = set(name_words(value.path)) & (
            _FROM | {"replaced", "replaces", "remove", "instead"}
        )
        if value.kind not in ("mail", "name", "id") or is_old:
            continue
        word = value.text.partition("@")[0]
        if len(word) < 4 or not all(each.isalnum() for each in word) or word not in text:
            continue
        without = re.findall(_LEFT_OUT.format(word), text)
        if without and len(without) == len(re.findall(rf"\b{word}\b", text)):
            yield value.path


_FROM_TO = re.compile(r"\bfrom ([\w-]{2,40}) to ([\w-]{2,40})\b")
_LEFT_OUT = (
    r"\b(?:without|except(?: for)?|excluding|not|leave|instead of|in place of|rather than)"
    r"(?: (?:for|to|with|the))?(?: the)? {0}\b"
    r"(?! only)"
)


def _names_of(value: Value, chat: ChatText) -> list[str]:
    """Return a value and the plain names in its record, by which a user may refer to it.

    Their single words follow; at most 18 in all.
    """
    found = [value.text] if len(value.text) <= 60 else []
    found += ALIASES.get(value.text, "").split()
    for record in chat.sources.records[-60:]:
        fields = [str(each).lower() for each in list(record.fields.values())[:12]]
        if value.text in fields:
            found += [each for each in fields if 2 < len(each) <= 40 and each[0].isalpha()]
    words = [w for each in found[:6] for w in re.findall(r"[^\W\d_]{4,}", each)]
    return list(dict.fromkeys([*found[:6], *words[:12]]))


_MARKERS = re.compile(
    r"\b(from|out of|to|into|onto)\b((?:[^.;!?\n]|[.](?=\S)){1,80}?)(?=\b(?:from|out of|to|into"
    r"|onto)\b"
    r"|[.;!?](?:\s|$)|\n|$)"
)


def _places(name: str, text: str) -> Iterator[str]:
    """Yield "from" or "to" for each place where a name follows that preposition in a text."""
    for marker, behind in _MARKERS.findall(text)[:20]:
        if holds_token(behind, name):
            yield "from" if marker in ("from", "out of") else "to"


def crossed_names(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield the paths of arguments with a value that the user put beside another argument's name.

    The request says `the search service`, and the call has `environment: search`. Cities,
    countries and states with a digit in them are yielded too.
    """
    text = chat.view.request.lower()[-2_000:]
    plain = [
        v for v in call.values[:12] if v.kind in ("name", "id", "choice") and 2 < len(v.text) < 40
    ]
    for value in plain:
        last = name_words(value.path)[-1:]
        for other in plain:
            name = name_words(other.path)[-1:]
            is_own = bool(name) and name[0] in name_words(value.path)
            if other is value or not name or is_own or len(name[0]) < 4 or value.text == other.text:
                continue
            if name[0] in _PERIODS:  # "last quarter Ann sold more"
                continue
            if _are_beside(value.text, name[0], text) and not _are_beside(
                other.text, name[0], text
            ):
                yield value.path
    for value in plain:
        last = name_words(value.path)[-1:]
        if (
            last
            and last[0] in ("city", "country", "state")
            and any(c.isdigit() for c in value.text)
        ):
            yield value.path


_PERIODS = word_set("time hour day week month quarter year season period")


def _are_beside(value: str, name: str, text: str) -> bool:
    """Return whether a text has a value right before or after a name, or a verb between."""
    forms = [f"{value} {name}", f"{name} {value}"]
    forms += [f"{value} {verb} {name}" for verb in ("has", "gets", "takes", "plays", "is", "as")]
    return any(holds_token(text, form) for form in forms)


def is_reversed(call: Call) -> bool:
    """Return whether a range ends before it starts, by the names of two arguments.

    Such names are `start` and `end`; both must have one day.
    """
    dated: dict[str, Value] = {}
    for value in call.values[:30]:
        if value.days or value.times:
            for word in name_words(value.path.rpartition(" ")[2]):
                dated.setdefault(word, value)
    for start, end in _PAIRS_OF_ENDS:
        one, other = dated.get(start), dated.get(end)
        if one is None or other is None or one is other or not (one.days and other.days):
            continue
        if len(one.days) == len(other.days) == 1 and (one.days, one.times) > (
            other.days,
            other.times,
        ):
            return True
    return False


def other_tool(call: Call, view: View) -> str | None:
    """Return another offered tool whose name begins with the user's first verb, or None.

    Only for a call whose tool changes something by a verb that the user did not use, and for a
    tool about the same thing: `cancel_order` for `update_order` and the request `cancel my
    order`.
    """
    request = words_of(view.request)[:40]
    own = {stem(w) for w in name_words(call.name)}
    first = next((w for w in request if verb_classes([w]) - {"look"}), None)
    if first is None or stem(first) in own:
        return None
    own_verb = next((w for w in name_words(call.name) if verb_classes([w])), None)
    if own_verb is None or stem(own_verb) in {stem(w) for w in request} or is_read(call.name):
        return None
    nouns = own - {stem(own_verb)}
    for name in list(view.tools)[:60]:
        words = [stem(w) for w in name_words(name)]
        if name != call.name and words[:1] == [stem(first)] and nouns & set(words):
            return name
    return None


def contrary_verb(call: Call, view: View) -> bool:
    """Return whether the user used the opposite of a verb in the tool's name, and not that verb.

    For example `lock_door` for the request `unlock the door`.
    """
    request = set(words_of(view.request))
    stems = {stem(word) for word in request}
    for word in name_words(call.name)[:3]:
        contraries = set(ANTONYMS.get(word, ())) | _opposites_of(word)
        if contraries & request and word not in request and stem(word) not in stems:
            return True
    return False


def _opposites_of(word: str) -> set[str]:
    """Return the opposites of a verb by its prefix: arm and disarm, lock and unlock."""
    for prefix in ("un", "dis", "de"):
        if word.startswith(prefix) and len(word) - len(prefix) >= 3:
            return {word[len(prefix) :]}
    return {f"{prefix}{word}" for prefix in ("un", "dis", "de")}


def ruled_out(call: Call, view: View, *, is_changing: bool) -> bool:
    """Return whether the user forbade the act of the call: `don't delete it`, `change nothing`.

    `is_changing` says that the call changes something. False if the user asks for the same act
    elsewhere.
    """
    request = words_of(view.request)
    own = [w for w in name_words(call.name)[:4] if verb_classes([w]) - {"look"}][:1]
    if _NO_CHANGE.search(view.request.lower()[-2_000:]) and is_changing:
        return True
    if not own:
        return False
    stems = {stem(own[0])}
    for at, word in enumerate(request):
        if word in ("don't", "dont", "never", "without") or (
            word == "not" and at and request[at - 1] in ("do", "should", "please", "must")
        ):
            window = request[at + 1 : at + 5]
            if any(stem(each) in stems or stem(each).startswith(stem(own[0])) for each in window):
                return not _is_asked_elsewhere(request, at, stems)
    return False


def _is_asked_elsewhere(request: list[str], at: int, stems: set[str]) -> bool:
    """Return whether one of the stems is in the request outside of the five words from `at`."""
    rest = request[:at] + request[at + 5 :]
    return any(stem(word) in stems for word in rest)


def is_pure_look(view: View) -> bool:
    """Return whether the user has only asked to look something up; False without a turn."""
    return bool(view.turns) and all(map(is_look, view.turns))


def is_ordered(call: Call, view: View) -> bool:
    """Return whether the request begins with the verb of the tool: print, for `print_file`."""
    words = [word for word in words_of(view.request) if word not in ("please", "now", "then")]
    own = {stem(word) for word in name_words(call.name)}
    return bool(words) and stem(words[0]) in own


def is_look(turn: str) -> bool:
    """Return whether a turn asks a question or asks to look, and asks for nothing else.

    False for turns of fewer than four words.
    """
    split = re.split(r"(?<=[.!?])\s+|\n+", turn.lower()[:2_000])
    sentences = [each.strip() for each in split if len(each.strip()) > 3]
    looks = [each for each in sentences if _PURE_LOOK.match(each)]
    if not looks or len(words_of(turn)) < 4:
        return False
    others = [each for each in sentences if each not in looks]
    return not (
        any(verb_classes(words_of(each)) & _ACTING or _TAKES.match(each) for each in others)
        or any(
            re.search(rf"\b(?:and|then)\s+(?:(?:then|also|please)\s+)*(?:{_ACTS})\b", each)
            for each in looks
        )
    )


_TAKES = re.compile(r"\W*(?:please |then |so )?(?:take|choose|pick|use|go|do|get|give|let)\b")
_ACTING = {
    "remove",
    "pay",
    "change",
    "lock",
    "unlock",
    "approve",
    "reject",
    "add",
    "send",
    "stop",
    "start",
}
_ACTS = (
    "delete|remove|cancel|pay|refund|send|book|order|buy|close|update|change|move|email|mail|tell|reply"
    "|forward|transfer|drop|clear|archive|create|add|make|put|reserve|share|let|set|notify|approve|post"
    "|publish|deploy|push|release|commit|merge|submit|ship|upload|install|fix|rename|replace|rewrite"
    "|tidy|clean|save|restart|stop|start|schedule|invite|grant|revoke|reject|charge|rebook|reschedule"
)


def wider_arguments(call: Call, chat: ChatText, *, destroys: bool) -> Iterator[str]:
    """Yield the paths of arguments that name a folder if the user named only paths in it.

    In a call that destroys, also the folder of listed paths, unless the user spoke of all or of
    a folder.
    """
    text = chat.sources.users.text
    if destroys and not says_all(chat.view) and not re.search(r"\b(?:folder|directory)\b", text):
        for value in call.values[:30]:
            below = f"{value.text.rstrip('/')}/"
            if 2 < len(below) < 200 and chat.sources.results.text.count(below) >= 2:
                yield value.path
    for value in call.values[:30]:
        path = value.text.rstrip("/*")
        if len(path) < 2 or " " in path or value.kind not in ("path", "name", "id"):
            continue
        if re.search(rf"(?<![\w.-]){re.escape(path)}/[\w.]", text) is None:
            continue
        if not re.search(rf"(?<![\w./-]){re.escape(path)}/?(?![\w./-]|-\w)", text):
            yield value.path


def says_all(view: View) -> bool:
    """Return whether the user's last turn has a word such as `all`, `every` or `everything`."""
    return bool(_ALL.search(view.request.lower()))


def is_named_by_user(value: Value, chat: ChatText) -> bool:
    """Return whether the user's own words have the value, in any form (`Source.holds`)."""
    users = chat.sources.users
    return users.holds(value) or holds_token(users.text, value.text)
