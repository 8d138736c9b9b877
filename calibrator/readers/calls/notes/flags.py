"""The check of a flag against the request: the value that the user's words give it.

A flag's name is read as a concept and its polarity: `skip_invoice` leaves out what
`include_invoice` takes, `delete_branch` is the contrary of `keep_branch`. The request is read by
clauses. A clause that speaks of the flag says yes or no by its own words and by the negations
before them. Clauses that disagree say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from calibrator.readers.calls.notes.chat_text import ChatText, description_of
from calibrator.readers.calls.reading.conversation import Call, Tool
from calibrator.readers.calls.reading.requests import verb_classes
from calibrator.readers.calls.reading.values import STOP, name_words, stem, word_set

MOST_TEXT: Final = 4_000  # characters of the request that are read
MOST_CLAUSES: Final = 60
BEFORE: Final = 10  # words before a mention in which a negation counts
AFTER: Final = 5  # words behind a mention in which "is not" or "excluded" counts


@dataclass(frozen=True, slots=True)
class Concept:
    """The subject of a flag, such as keeping: stems of words for it, and for its opposite."""

    for_it: frozenset[str]
    against: frozenset[str]
    needs_object: bool = False  # the clause must also name what it is about

    def polarity(self, word: str) -> int:
        """Return 1 if a stem is a word for the concept, -1 for its opposite, 0 for neither."""
        return (word in self.for_it) - (word in self.against)


def _concept(for_it: str, against: str, *, needs_object: bool = False) -> Concept:
    """Return a concept from words for it and against it, separated by blanks."""
    return Concept(_stems(for_it), _stems(against), needs_object)


def _stems(words: str) -> frozenset[str]:
    """Return the stems of words, separated by blanks."""
    return frozenset(map(stem, words.split()))


_CONTACT = _concept(
    "notify notifying notification inform tell telling alert remind reminder email mail message"
    " invite invitation announce",
    "quiet quietly silent silently secretly surprise discreetly",
)
_ACTIVE = _concept("active activate enable enabled", "inactive deactivate disable")
_CONCEPTS: Final = (
    _CONTACT,
    _ACTIVE,
    _concept(
        "keep kept stay staying remain retain preserve continue",
        "revoke delete deleting remove discard destroy erase wipe purge clean deactivate disable",
        needs_object=True,
    ),
    _concept(
        "permanent permanently irrevocably forever irreversible",
        "restore recover recoverable undo trash soft temporary temporarily",
    ),
    _concept("dry simulate simulation trial preview rehearse rehearsal pretend", "really"),
    _concept("public publicly", "private privately confidential internal"),
    _concept("anonymous anonymously anonymize anonymise", "named"),
    _concept("recursive recursively subfolder subdirectory subdirectories nested", ""),
    _concept("overwrite overwritten replace replacing", "", needs_object=True),
    _concept("graceful gracefully gently", "force forced forcibly forcefully hard"),
    _concept("encrypt encrypted encryption", "unencrypted plaintext"),
    _concept("close closing shut", ""),
    _concept("reassign transfer migrate", "remain stay staying keep", needs_object=True),
    _concept("full complete entire whole", "incremental partial"),
)
_AFFIRMING = word_set(
    "is has have should the with include including included enable enabled flag set use do allow"
    " allowed by make was mark send can required require needs needed need necessary of and also"
    " only option"
)
_OMITTING = word_set("exclude skip omit ignore suppress disable prevent forbid hide no without not")
_NAMED_OMISSIONS = _stems("exclude skip omit ignore suppress disable prevent forbid hide")
_NEGATORS = word_set(
    "not no none nobody nothing never without neither nor avoid except hate hates dislikes cannot"
    " stop excluding exclude skip omit forbid prevent minus needn't nowhere rather disable disabled"
    " deactivate"
)
_BEHIND = word_set("off excluded unnecessary needn't nothing nobody none")
_AUXILIARIES = word_set(
    "is are was were should must do does need needs has have to may can will be"
)
_STARTS_ANEW = word_set("should must will shall who which since when whose")
_NEGATED_SUBJECTS = word_set("nobody nothing none neither")
_PRONOUNS = word_set(
    "it its them they everything nothing anything everyone everybody nobody all one ones that those"
    " what"
)
_MYSELF = re.compile(r"\b(?:myself|ourselves|(?:i|we)(?:'ll| will))\b")
_CONDITION = re.compile(r"\b(?:if|unless|whether|until)\b.*", re.DOTALL)
_PHRASES: Final = (  # several words with one meaning, and the word that they are read as
    (r"\b(?:don't|do not|never|not) (?:forget|hesitate|fail) to\b", " "),
    (r"\bnot (?:only|just)\b|\b(?:no|not a) problem\b|\bno matter\b|\bwhy not\b", " "),
    (r"\bneither\b", " not "),
    (r"\bnor\b", " or "),
    (r"\blet (?:\w+ ){1,3}?know\b", " notify "),
    (r"\bwrite to (?:him|her|them|any(?:body|one)|every(?:body|one)|mr|mrs|ms|dr)\b", " notify "),
    (r"\bsend (?:him|her|them|anybody|anyone|the \w+) (?:anything|a line)\b", " email "),
    (r"\be-mail", "email"),
    (r"\b(?:leave|leaving|left|leaves) (?:\w+ ){0,4}?out\b", " without "),
    (r"\bexcept for\b|\bother than\b|\bapart from\b", " without "),
    (r"\b(?:only|just) (?:the |what (?:has |was |is )?)?chang\w*\b", " incremental "),
    (r"\b(?:go|goes|going) on \w+ing\b", " stay "),
    (r"\bfor good\b", " permanently "),
    (r"\bfor real\b|\bin earnest\b", " really "),
    (r"\b(?:a|as a|just a|only a) (?:test|trial)(?: run)?\b|\btest run\b|\bdry[- ]run\b",
     " simulate "),
    (r"\b(?:day and night|night and day|around the clock)\b", " "),
    (r"\b(?:stays?|remains?|keep|leave)(?: \w+){0,3} open\b", " not close "),
    (r"\bnot really\b|\b(?:don't|do not) really\b", " simulate "),
    (r"\bwith (?:the )?names\b", " named "),
    (r"\b(?:need|has|have) not be\b|\bdoesn't (?:need|have) to be\b", " needn't be "),
)  # fmt: skip
_CLAUSES = re.compile(
    r"[;!?:\n]+|[.](?=\s|$)|,|\b(?:but|and|so|because|though|although|while|then)\b"
)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_AT_ONCE = re.compile(
    r"\b(?:immediately|right away|right now|at once|straight away|today|this minute|as of now"
    r"|with immediate effect|now)\b"
)
_NOT_AT_ONCE = re.compile(r"\bnot (?:immediately|right away|right now|at once|now|yet)\b")
_LATER = re.compile(
    r"\b(?:end of|at (?:the )?(?:end|renewal)|(?:month|year|period|term|contract|cycle|quarter) "
    r"(?:is over|ends|runs out|has ended)|runs out|expires)\b"
)
_NAMES_AT_ONCE = word_set("immediate immediately now instant instantly")
_NAMES_LATER = word_set("end later after next delayed schedule scheduled defer renewal")
_SWITCHES = word_set("on enabled active power state enable activated running")
_SWITCHED_OFF = re.compile(
    r"\b(?:turn|switch)\w*\b[^.;!?]{0,40}\boff\b|\b(?:disable|deactivate|shut (?:off|down))\b"
)
_SWITCHED_ON = re.compile(r"\b(?:turn|switch)\w*\b[^.;!?]{0,40}\bon\b|\b(?:enable|activate)\b")


_PROVIDES = word_set("rent rents rental hire hires borrow lend needs need provide supply")
_OWN = re.compile(r"\b(?:his|her|their|my|our) own (\w+)")


def other_flag(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, value that the user's words say) of flags that contradict the request.

    For `don't tell anyone` and `notify=true` the value is "false". Flags of which the request
    says nothing, or both, are left out.
    """
    flags = [value for value in call.values[:30] if isinstance(value.raw, bool)]
    if not flags:
        return
    text = chat.view.request.lower()[-MOST_TEXT:]
    clauses = list(_clauses_of(text))
    contacts = sum(_CONTACT in _concepts_of(name_words(value.path)) for value in flags)
    for value in flags:
        names = name_words(value.path.rpartition(" ")[2])
        wanted = _by_time(names, text)
        if wanted is None:
            wanted = _by_switch(names, text)
        if wanted is None and set(names) & _PROVIDES and set(_OWN.findall(text)) & set(names):
            wanted = False
        if wanted is None and len(names) == 1 and names[0] in _SWITCHES:
            wanted = _common_value(_Flag(_ACTIVE, frozenset(), 1, 0), clauses)
        if wanted is None:
            read = _read_name(names, call.name, is_one_of_many=contacts > 1)
            wanted = _common_value(read, clauses)
        if wanted is None and (text_of_flag := description_of(value, tool)):
            wanted = _common_value(_read_description(text_of_flag), clauses)
        if wanted is not None and wanted is not value.raw:
            yield value.path, str(wanted).lower()


def other_moment(text: str, value: str, choices: Sequence[str]) -> str | None:
    """Return the choice for the moment that the request names, if `value` is one for another.

    For `cancel it now`, `value` `period_end` and the choices `immediately` and `period_end` it
    is `immediately`. None if the request names no moment, or the choices are not one for at
    once and one for the end of a period.
    """
    now = [each for each in choices if set(name_words(each)) & _NAMES_AT_ONCE]
    later = [each for each in choices if set(name_words(each)) & _NAMES_LATER]
    is_later = wants_later(text.lower()[-MOST_TEXT:])
    if is_later is None or len(now) != 1 or len(later) != 1 or value not in (now[0], later[0]):
        return None
    wanted = later[0] if is_later else now[0]
    return wanted if wanted != value else None


def wants_later(text: str) -> bool | None:
    """Return whether a text, in lower case, says at the end of a period rather than at once.

    None if it says neither, or both.
    """
    is_later = bool(_LATER.search(text) or _NOT_AT_ONCE.search(text))
    is_now = bool(_AT_ONCE.search(_NOT_AT_ONCE.sub(" ", text)))
    return is_later if is_later != is_now else None


def _by_time(names: list[str], text: str) -> bool | None:
    """Return the wanted value of a flag that says when: at once, or at the end of a period.

    `names` are the words of its name, as in `cancel_now`. None for other flags or an unclear
    request.
    """
    is_now = bool(set(names) & _NAMES_AT_ONCE)
    if not is_now and not ("at" in names or set(names[:1]) & _NAMES_LATER):
        return None
    if not is_now and not set(names) & _NAMES_LATER:
        return None
    is_later = wants_later(text)
    return None if is_later is None else is_later is not is_now


def _by_switch(names: list[str], text: str) -> bool | None:
    """Return the wanted value of a flag that switches the thing itself on or off.

    For `on` and the request `turn off the light` it is False. None for other flags or an
    unclear request.
    """
    if len(names) != 1 or names[0] not in _SWITCHES:
        return None
    is_off, is_on = bool(_SWITCHED_OFF.search(text)), bool(_SWITCHED_ON.search(text))
    return is_on if is_off != is_on else None


@dataclass(frozen=True, slots=True)
class _Flag:
    """The meaning of a flag, read from its name or its description.

    `concept` is None if its words belong to none.
    """

    concept: Concept | None
    content: frozenset[str]  # stems of the other words
    sign: int  # -1 if true means the contrary of the concept
    least: int  # content words that a clause must have
    head: str = ""  # the content word that is enough for a no: `wrap` of `gift_wrap`


def _read_name(names: list[str], tool_name: str, *, is_one_of_many: bool) -> _Flag | None:
    """Return the meaning of a flag by its name, or None if the name has no word of its own.

    `names` are the words of its name; `is_one_of_many` says that the call has several flags
    about messages.
    """
    words = [stem(word) for word in names if word not in _AFFIRMING and len(word) > 2]
    omitting = [word for word in names if word in _OMITTING]
    names = ["simulate" if word == "test" else word for word in names]
    if len(names) == 1 and names[0] in _SWITCHES:
        of_tool = [w for w in name_words(tool_name) if w not in STOP and not verb_classes([w])]
        content = frozenset(map(stem, of_tool)) - _stems("enable enabled toggle switch device")
        return _Flag(None, content, 1, 1) if content else None
    found = _concepts_of(names)
    if found and not omitting:
        concept = found[0]
        own = next(word for word in map(stem, names) if concept.polarity(word))
        content = frozenset(word for word in words if not concept.polarity(word))
        is_contact = concept is _CONTACT
        if is_contact and any(map(_CONTACT.polarity, map(stem, name_words(tool_name)))):
            return None  # the call itself is the message
        needed = concept.needs_object or (is_contact and is_one_of_many)
        return _Flag(concept, content, concept.polarity(own), min(1, len(content)) * needed)
    content = frozenset(words) - _stems(" ".join(omitting))
    if omitting and content:  # "no header in the file" does not say whether to skip one
        named = Concept(_stems(" ".join(omitting)) | _NAMED_OMISSIONS | {"without"}, frozenset())
        return _Flag(named, content, 1, 1)
    return _Flag(None, content, 1, len(content), words[-1]) if content else None


def _read_description(text: str) -> _Flag | None:
    """Return the meaning of a flag by the first clause of its description.

    None if that names no concept and has fewer than two content words.
    """
    clause = re.split(r"[.;:]", text.lower()[:200])[0]
    words = _WORD.findall(clause)
    sign = -1 if any(_is_negation(word) for word in words) else 1
    plain = [w for w in words if w not in STOP and w not in _AFFIRMING and not _is_negation(w)]
    found = _concepts_of(plain)
    content = frozenset(map(stem, plain))
    if found:
        concept = found[0]
        own = next(word for word in map(stem, plain) if concept.polarity(word))
        rest = frozenset(word for word in content if not concept.polarity(word))
        return _Flag(concept, rest, sign * concept.polarity(own), int(concept.needs_object))
    return _Flag(None, content, sign, 2) if len(content) >= 2 else None


def _concepts_of(words: Sequence[str]) -> list[Concept]:
    """Return the concepts of a flag's words, in the order of the words; [] without any."""
    stems = [stem(word) for word in words if word not in ("enable", "enabled")]
    return [c for word in stems for c in _CONCEPTS if c.polarity(word)]


def _clauses_of(text: str) -> Iterator[list[str]]:
    """Yield the clauses of a request, as lists of words, without conditions (`if ..`).

    Set phrases are replaced first: `let her know` is read as `notify`. At most the last 60
    clauses.
    """
    for pattern, word in _PHRASES:
        text = re.sub(pattern, word, text)
    for clause in _CLAUSES.split(text)[-MOST_CLAUSES:]:
        if words := _WORD.findall(_CONDITION.sub("", clause)):
            yield words


def _common_value(flag: _Flag | None, clauses: Sequence[list[str]]) -> bool | None:
    """Return the value of a flag in which all clauses about it agree; None if they differ.

    None also if no clause is about it. `clauses` are lists of words.
    """
    if flag is None:
        return None
    found: set[int] = set()
    for words in clauses:
        if sign := _sign_in(flag, words):
            found.add(sign)
        elif found and "none" in words:  # "he gets one from the shop, so send none"
            found = {-flag.sign}
    return found == {1} if len(found) == 1 else None


def _sign_in(flag: _Flag, words: list[str]) -> int:
    """Return 1 if a clause says yes to a flag, -1 if it says no, 0 if it is not about the flag.

    `words` are the clause's. For the flag `notify`, `tell nobody` gives -1.
    """
    stems = [stem(word) for word in words]
    matched = [_matches(each, flag.content) for each in stems]
    named = {word for word, _ in filter(None, matched)}
    if flag.concept is None:
        if not named or (len(named) < flag.least and flag.head not in named):
            return 0
        at, own = next((at, found[1]) for at, found in enumerate(matched) if found)
        sign = own * _negation(words, at)
        return flag.sign * sign if len(named) >= flag.least or sign < 0 else 0
    if flag.least and not named and not set(words) & _PRONOUNS:
        return 0
    for at, each in enumerate(stems):
        if (own := flag.concept.polarity(each)) == 0:
            continue
        if flag.concept is _CONTACT and (
            _MYSELF.search(" ".join(words)) or words[at + 1 : at + 2] in (["me"], ["us"])
        ):
            return 0  # the user sends the message, or receives it
        return flag.sign * own * _negation(words, at)
    return 0


def _matches(word: str, content: frozenset[str]) -> tuple[str, int] | None:
    """Return the content word that a stem matches, with 1, or with -1 for an opposite (unlocked).

    None if it matches none.
    """
    for each in content:
        shorter, longer = sorted((word, each), key=len)
        if word == each or (len(shorter) >= 4 and longer.startswith(shorter)):
            return each, 1
        for prefix in ("un", "in", "de", "non", "dis"):
            rest = word.removeprefix(prefix)
            if rest != word and len(rest) >= 4 and each.startswith(rest):
                return each, -1
    return None


def _negation(words: list[str], at: int) -> int:
    """Return -1 if the words around a place negate it (an odd number of times), else 1.

    The ten words before `at` are read (`do not send`), and the five behind (`is not needed`).
    """
    count, is_other_part = 0, False
    for word in reversed(words[max(0, at - BEFORE) : at]):
        is_other_part |= word in _STARTS_ANEW
        count += _is_negation(word) and (not is_other_part or word in _NEGATED_SUBJECTS)
    behind = words[at + 1 : at + 1 + AFTER]
    for place, word in enumerate(behind):
        earlier = behind[place - 1] if place else words[at]
        count += word in _BEHIND or (word.endswith("n't") and word != "needn't")
        count += word == "not" and earlier in _AUXILIARIES
    return -1 if count % 2 else 1


def _is_negation(word: str) -> bool:
    """Return whether a word negates: `not`, `without`, `don't`."""
    return word in _NEGATORS or word.endswith("n't")
