"""Whether a call does what the user asked for: the choice, the direction, no more than was named.

Each check speaks only where the user's own words settle the matter, and is silent otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from calibrator.calls.notes.said import Said, holds_token
from calibrator.calls.reading.conversation import Call, Tool, View
from calibrator.calls.reading.requests import ANTONYMS, verb_classes
from calibrator.calls.reading.values import Value, name_words, stem, word_set

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_NOT = word_set("not don't dont never without no doesn't doesnt shouldn't won't isn't avoid"
                " except skip nobody nothing neither nor instead")  # fmt: skip
_ALIKE = (
    "read reader view viewer look see readonly reading viewing",
    "write writer edit editor change modify editing",
    "owner admin administrator manage full",
    "high urgent critical asap important immediately severe blocker emergency",
    "low minor whenever unimportant",
    "one-way oneway single", "round return roundtrip",
    "express fast quick fastest overnight priority", "standard normal regular",
    "private confidential secret", "public everyone everybody open",
    "daily day", "weekly week", "monthly month", "yearly annual annually year",
    "delete remove", "cancel stop end terminate", "pause suspend", "credit refund", "debit charge",
    "male man", "female woman", "asc ascending", "desc descending",
    "production prod live", "staging stage", "development dev",
    "card creditcard", "invoice bill", "cash", "window", "aisle", "vegetarian veggie", "vegan",
)  # fmt: skip
_KIN: dict[str, set[str]] = {}
for _line in _ALIKE:
    for _each in _line.split():
        _KIN.setdefault(_each, set()).update(_line.split())
_LATER = word_set("end later after next delayed schedule scheduled defer")
_NOW = re.compile(r"\b(?:immediately|right away|right now|at once|straight away|today|this minute"
                  r"|as of now|with immediate effect|now)\b")  # fmt: skip
_FROM = word_set("from source origin src sender departure old payer debit")
_TO = word_set("to target destination dest dst recipient receiver arrival new into payee credit")
_ALL = re.compile(r"\b(?:all|every|everything|everyone|everybody|entire|whole|any|each|wipe)\b")
_PURE_LOOK = re.compile(
    r"^\W*(?:(?:please|can you|could you|would you|hey|hi|hello|ok|and|also|just|now)\W+)*"
    r"(?:which|what|how|show|list|find|count|who|when|where|give me|tell me|print|look|check|see"
    r"|display|search|summari[sz]e|read|is there|are there|do we|do i|does|did|has|have)\b"
)
MOST_WORDS = 400  # of the request, from its end


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, the last `MOST_WORDS` of them."""
    return _WORD.findall(text.lower())[-MOST_WORDS:]


def other_choice(call: Call, tool: Tool | None, said: Said) -> Iterator[tuple[str, str]]:
    """Yield arguments whose value is another of the allowed ones than the one the user named."""
    request = words_of(said.view.request)
    for value in call.values[:30]:
        choices = _choices(tool, value)
        if len(choices) < 2 or not isinstance(value.raw, str):
            continue
        named = [each for each in choices if _is_named(each, request)]
        if named and value.raw not in named and not _is_named(value.raw, request):
            yield value.path, str(named[0])[:60]


def other_flag(call: Call, said: Said) -> Iterator[tuple[str, str]]:
    """Yield arguments that are true or false where the user's words say the contrary."""
    text = said.view.request.lower()
    request = words_of(text)
    for value in call.values[:30]:
        if not isinstance(value.raw, bool):
            continue
        names = [w for w in name_words(value.path) if len(w) > 2 and w not in _DULL]
        wanted = _wanted(names, request, text)
        if wanted is not None and wanted is not value.raw:
            yield value.path, str(wanted).lower()


_DULL = word_set("is has should the with include including enable enabled flag set use do allow by"
                 " make was mark")  # fmt: skip


def _wanted(names: list[str], request: list[str], text: str) -> bool | None:
    """What a flag of such a name should be; None where the user's words do not tell."""
    stems = {stem(w) for w in names}
    if stems & {stem(w) for w in _LATER}:
        rest = stems - {stem("at")}
        if sum(w in {stem(r) for r in request} for w in rest) >= min(2, len(rest)):
            return True
        return False if _NOW.search(text) else None
    places = [at for at, word in enumerate(request) if stem(word) in stems]
    if not places or len({stem(request[at]) for at in places}) < (len(stems) + 1) // 2:
        return None
    at = places[0]
    negated = any(word in _NOT for word in request[max(0, at - 4) : at])
    return not negated


def _choices(tool: Tool | None, value: Value) -> Sequence[str]:
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
    """The part of a description that lists words: `one of a, b or c`, `a | b | c`."""
    found = re.search(r"((?:[a-z_-]+\s*(?:,|/|\||\bor\b)\s*)+(?:or\s+)?[a-z_-]+)", described)
    return found[1].replace(" or ", " ") if found else ""


def _is_named(choice: str, request: list[str]) -> bool:
    """Whether the user named a choice, in any of its forms, and did not rule it out."""
    wanted = [w for w in _WORD.findall(choice.lower().replace("_", " ")) if len(w) > 1]
    if not wanted:
        return False
    for word in wanted:
        kin = {stem(each) for each in _KIN.get(word, ())} | {stem(word)}
        places = [at for at, each in enumerate(request) if stem(each) in kin]
        free = [at for at in places if not any(w in _NOT for w in request[max(0, at - 3) : at])]
        if not free:
            return False
    return True


def wrong_way(call: Call, said: Said) -> Iterator[str]:
    """Yield arguments for a start that have what the user named as the end, and the reverse."""
    text = said.view.request.lower()[-4_000:]
    for value in call.values[:20]:
        names = set(name_words(value.path.rpartition(" ")[2]))
        is_from, is_to = bool(names & _FROM), bool(names & _TO)
        if is_from == is_to or value.kind in ("flag", "empty", "text", "date", "number"):
            continue
        places = {place for name in _names_of(value, said) for place in _places(name, text)}
        if places == {"to" if is_from else "from"}:
            yield value.path


def _names_of(value: Value, said: Said) -> list[str]:
    """A value and the plain names in its record, by which a user may call it."""
    found = [value.text] if len(value.text) <= 60 else []
    for record in said.sources.records[-60:]:
        fields = [str(each).lower() for each in list(record.fields.values())[:12]]
        if value.text in fields:
            found += [each for each in fields if 2 < len(each) <= 40 and each[0].isalpha()]
    words = [w for each in found[:6] for w in re.findall(r"[^\W\d_]{4,}", each)]
    return list(dict.fromkeys([*found[:6], *words[:12]]))


def _places(name: str, text: str) -> Iterator[str]:
    """Whether a name stands behind `from` or behind `to` in a text."""
    lead = r"\b(from|out of|to|into|onto)\s+(?:(?:the|my|our|your|a|account|folder|branch)\s+){0,2}"
    for found in list(re.finditer(lead + re.escape(name) + r"(?![^\W_])", text))[:4]:
        yield "from" if found[1] in ("from", "out of") else "to"


def contrary_verb(call: Call, view: View) -> bool:
    """Whether the tool does the opposite of the one verb that the user used for it."""
    own, request = name_words(call.name), set(words_of(view.request))
    return any(
        ANTONYMS[w] & request and w not in request and stem(w) not in {stem(r) for r in request}
        for w in own
        if w in ANTONYMS
    )


def ruled_out(call: Call, view: View) -> bool:
    """Whether the user said not to do what the call does."""
    request = words_of(view.request)
    own = [w for w in name_words(call.name)[:4] if verb_classes([w]) - {"look"}][:1]
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
    rest = request[:at] + request[at + 5 :]
    return any(stem(word) in stems for word in rest)


def is_pure_look(view: View) -> bool:
    """Whether all that the user asked for last is to look something up."""
    request = view.request.strip().lower()[:2_000]
    if not _PURE_LOOK.match(request):
        return False
    wanted = verb_classes(words_of(request))
    return not wanted & {"remove", "pay", "change", "lock", "unlock", "approve", "reject"}


def wider(call: Call, said: Said) -> Iterator[str]:
    """Yield arguments that name the folder of a path where the user named only what is in it."""
    text = said.sources.users.text
    for value in call.values[:30]:
        path = value.text.rstrip("/*")
        if len(path) < 2 or " " in path or value.kind not in ("path", "name", "id"):
            continue
        if re.search(rf"(?<![\w.-]){re.escape(path)}/[\w.]", text) is None:
            continue
        if not re.search(rf"(?<![\w./-]){re.escape(path)}/?(?![\w./-]|-\w)", text):
            yield value.path


def says_all(view: View) -> bool:
    """Whether the user spoke of all, every or everything."""
    return bool(_ALL.search(view.request.lower()))


def is_named_by_user(value: Value, said: Said) -> bool:
    """Whether the user's own words have the value."""
    users = said.sources.users
    return users.holds(value) or holds_token(users.text, value.text)
