"""The wishes for a number of words, sentences, paragraphs, lines, bullets, items or characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import number_words
from calibrator.readers.evidence.computed.form import counting

_KINDS: Final = {
    "word": r"words?|wörtern?|worte?n?|palabras?|mots?",
    "sentence": r"sentences?|sätzen?|satz|oraci(?:ón|ones)|frases?|phrases?",
    "paragraph": r"paragraphs?|absätzen?|absatz|párrafos?|paragraphes?",
    "line": r"lines?|zeilen?|líneas?|lignes?",
    "bullet": r"bullet[- ]?points?|bullets?|stichpunkten?"
    r"|aufzählungspunkten?|viñetas?|puces?|points? listés",
    "character": r"characters?|zeichen|caracteres|caractères?",
    "item": r"items?|entries|points?|elements?|ideas?|options?|examples?"
    r"|reasons?|tips?|suggestions?|names?|ways?|steps?|facts?|questions?|beispiele?|gründe"
    r"|ideen|tipps?|ejemplos?|razones|ideas|consejos?|exemples?|raisons?|idées|conseils?",
}
_AT_MOST: Final = (
    r"at most|less than a total of|fewer than a total of|no more"
    r" than|not more than|not exceed(?:ing)?|under|below|fewer than|less than|max(?:imum)?\.?(?:"
    r" of)?|a maximum of|up to|within|no longer than|not longer than|höchstens|maximal|weniger als"
    r"|nicht mehr als|como máximo|máximo(?: de)?|un máximo de|menos de|no más de|au maximum|au"
    r" plus|pas plus de|moins de|maximum"
)
_AT_LEAST: Final = (
    r"no menos de|pas moins de|nicht weniger als|at least|a"
    r" minimum of|minimum(?: of)?|no fewer than|no less than|not less than|more than|over"
    r"|mindestens|mehr als|al menos|por lo menos|como mínimo|un mínimo de|más de|au moins|au"
    r" minimum|minimum|plus de"
)
_EXACTLY: Final = r"exactly|precisely|genau|exactamente|exactement|précisément"
_STRICT_LESS: Final = re.compile(
    r"fewer than|less than|under|below|weniger als|menos de|moins"
    r" de",
    re.IGNORECASE,
)
_STRICT_MORE: Final = re.compile(r"more than|over|mehr als|más de|plus de", re.IGNORECASE)
_SKIP_BEFORE: Final = re.compile(
    r"\b(?:each|every|per|jeder?|jedes|cada|chaque|first|last|second|these|those|about|around"
    r"|roughly"
    r"|approximately|circa|etwa|ungefähr|aproximadamente|environ|unas|unos|paragraphs? of"
    r"|sentences? of"
    r"|lines? of|title|subject|heading|stanzas?|verse|capital(?:ized|ised)?|uppercase"
    r"|all caps|capitals?|bold|italic\w*|highlight\w*|emphasi[sz]e\w*|keyword|start\w*|begins?"
    r"|letter"
    r"|appear\w*|repeated|times|rhym\w*|vowel\w*|separate\w*)\b",
    re.IGNORECASE,
)
_SKIP_AFTER: Final = re.compile(
    r"\b(?:each|every|per|apiece|jeweils|cada|chaque|of (?:at least|at most|exactly)|capital"
    r"(?:ized|ised)?"
    r"|uppercase|all caps|capitals?|bold|italic\w*|highlight\w*|starts? with|start\w*|begins?"
    r"|contain(?:s|ing)|letter|appear\w*|times|tilde|mayúsculas|majuscules|großbuchstaben|rhym\w*"
    r"|vowel\w*|consecutive|same|separate\w*|unique|syllab\w*|stanzas?)\b",
    re.IGNORECASE,
)


@cache
def _number() -> str:
    """Return a regular expression for whole numbers, in digits or in words up to 50."""
    words = [
        word for word, value in number_words().items() if 0 < value <= 50 and word not in ("o",)
    ]
    return (
        r"(?:\d{1,5}|a single|single|"
        + "|".join(sorted(map(re.escape, words), key=len, reverse=True))
        + ")"
    )


@cache
def _kind_pattern() -> str:
    """Return a regular expression of the things that are counted, with a group for each.

    An example is `word`.
    """
    return "|".join(f"(?P<{name}>{pattern})" for name, pattern in _KINDS.items() if name != "item")


@cache
def _wish() -> re.Pattern[str]:
    """Return the pattern of a wish for a count, such as `at most 100 words`; compiled once."""
    number = _number()
    return re.compile(
        rf"\b(?:(?P<most>{_AT_MOST})\s+|(?P<least>{_AT_LEAST})\s+|(?P<exact>{_EXACTLY})\s+|"
        rf"(?P<range>(?:between|zwischen|entre)\s+(?P<low>{number})\s+(?:and|und|y|et)\s+|"
        rf"(?P<low2>{number})\s*(?:to|-|–|or|bis|oder|a|o|à|ou)\s*))?"
        rf"(?:(?:only|just|nur|solo|seulement)\s+)?(?P<n>{number})[- ]+(?:(?:short|long|concise"
        r"|simple|brief|complete|full|markdown|kurzen?|cort[ao]s|different)\s+)?"
        rf"(?:{_kind_pattern()})\b"
        r"(?P<after>\s*(?:\(?(?:or|oder|o|ou) (?:less|fewer|weniger|menos|moins)|\(?max(?:imum"
        r"|\.)?|at most|tops|or under|como máximo|höchstens|(?P<more>or more|or longer|oder mehr"
        r"|o más|ou plus|minimum|at least)))?",
        re.IGNORECASE,
    )


_REFUSES: Final = re.compile(
    r"^\W*(?:i(?:'m| am) sorry|sorry|i can(?:'t|not)|i(?:'m| am) unable|i won't|lo siento|désolé"
    r"|es tut mir leid)",
    re.IGNORECASE,
)


_SEPARATED: Final = re.compile(r"\*\*\*|\b(?:separat|sépar|separ)", re.IGNORECASE)


def count_fault(sentences: list[str], reply: str) -> str | None:
    """Describe how a reply breaks a wish such as `at most 100 words`, or return None.

    `sentences` are those of the request and rules that state wishes. Refusals are not judged.
    """
    text = counting.plain_text(reply)
    if _REFUSES.match(text):
        return None
    # paragraphs with another separator than empty lines are not counted here
    is_separated = any(_SEPARATED.search(sentence) for sentence in sentences)
    for sentence in sentences:
        for found in _wish().finditer(sentence):
            if is_separated and found["paragraph"]:
                continue
            before = sentence[max(0, found.start() - 40) : found.start()]
            after = sentence[found.end() : found.end() + 30]
            if _SKIP_BEFORE.search(before) or _SKIP_AFTER.search(after):
                continue
            is_one_word = (
                found["word"] and counting.value_of(found["n"]) == 1
            )  # judged by `short_answers`
            if is_one_word or _is_other(sentence, found):
                continue
            fault = _fault(found, sentence, text)
            if fault:
                return fault
    return None


def _is_other(sentence: str, found: re.Match[str]) -> bool:
    """Return whether a count is of something else.

    An example is `the 3 paragraphs above`, `a story with two lines`. `found` is its match in
    `sentence`.
    """
    before = sentence[: found.start()].rstrip().casefold()
    after = sentence[found.end() :].casefold()
    if re.search(
        r"\b(?:the|these|those|his|her|my|your|this|following|previous"
        r"|die|los|las|les)$",
        before,
    ):
        return True
    if re.search(
        r"\b(?:read|write about|story about|has|have|had|was|were"
        r"|there (?:are|were)|paragraph|section)$",
        before,
    ):
        return True
    if re.match(
        r"\s*(?:long )?(?:text|story|article|essay|document|poem|email"
        r"|letter|post|review|description|summary|bio|speech|blog|sentence)s? (?:is|was|are|above"
        r"|below)",
        after,
    ):
        return True
    return bool(
        re.match(
            r"\s*(?:starting|beginning|containing|in (?:the|each|every|all|upper|capital)|from|ago"
            r"|away"
            r"|or phrases?|and (?:a|one|two|three|\d)|, (?:each|and (?:each|every))|acentuad\w*"
            r"|con|que|qui"
            r"|en (?:may|maj|min)\w*|commen\w*|written|distinct\w*)\b",
            after,
        )
    )


def _fault(found: re.Match[str], sentence: str, text: str) -> str | None:
    """Describe how `text` breaks one wish for a count (a match of `_wish`).

    None if it does not.
    """
    kind = next(name for name in _KINDS if name != "item" and found[name])
    number = counting.value_of(found["n"])
    low, high = _bounds(found, sentence, kind, number)
    if low is None and high is None:
        return None
    least, most = _count_range(kind, text)
    low, high = _with_slack(low, high, kind)
    unit = kind if number == 1 else f"{kind}s"
    if high is not None and least > high:
        return (
            f"the reply has {least} {kind}s, not at most {high}"
            if low != high
            else f"the reply has {least} {kind}s, not {number}"
        )
    if low is not None and most < low:
        count_text = f"{most} {kind}{'' if most == 1 else 's'}"
        return (
            f"the reply has {count_text}, not {number} {unit}"
            if low == high
            else f"the reply has {count_text}, not at least {low}"
        )
    return None


def _with_slack(low: int | None, high: int | None, kind: str) -> tuple[int | None, int | None]:
    """Return bounds for words, sentences and characters widened by 5 %, because countings differ.

    Bounds up to 3 and those of other kinds are unchanged.
    """
    if kind not in ("word", "sentence", "character"):
        return low, high
    if low is not None and low > 3:
        low -= max(1, low // 20) if kind == "sentence" else low // 20
    if high is not None and high > 3:
        high += max(1, high // 20) if kind == "sentence" else high // 20
    return low, high


def _bounds(
    found: re.Match[str], sentence: str, kind: str, number: int
) -> tuple[int | None, int | None]:
    """Return (least, most) as a wish allows them; None for an open side.

    (None, None) if it is no wish or too vague, such as `a two-line poem`. `kind` is the counted
    thing, such as `word`.
    """
    if found["most"]:
        return None, number - 1 if _STRICT_LESS.fullmatch(found["most"]) else number
    if found["least"]:
        return (number + 1 if _STRICT_MORE.fullmatch(found["least"]) else number), None
    if found["range"]:
        low = counting.value_of(found["low"] or found["low2"])
        if kind == "word":
            return low * 9 // 10, number * 11 // 10
        return (low, number) if kind in ("sentence", "bullet") else (None, None)
    if found["after"]:
        return (number, None) if found["more"] else (None, number)
    before = sentence[: found.start()]
    if found["exact"]:
        return number, number
    is_in = re.search(
        r"\b(?:in|using|as|to|into|use|mit|en|con|avec|give me|write|answer|reply)\s+(?:just |only"
        r" |no more than )?$",
        f"{before} ",
        re.IGNORECASE,
    )
    if not is_in or re.match(
        r"\s*(?:long|\w+ (?:story|poem|text|essay))\b", sentence[found.end() :]
    ):
        return None, None  # a rough size, such as a two-line poem
    if kind in ("word", "character") and number > 5:
        return int(number * 0.5), int(number * 1.5)
    return number, number


def _count_range(kind: str, text: str) -> tuple[int, int]:
    """Return (least, most): how many of a kind, such as `word`, a text may be counted to have."""
    if kind == "word":
        count = len(counting.words(text))
        loose = len(text.split())
        return min(count, loose), max(count, loose)
    if kind == "sentence":
        return counting.sentence_counts(text)
    if kind == "paragraph":
        count = counting.paragraphs(text)
        marked = len([part for part in text.split("***") if counting.words(part)])
        rows = len(counting.lines(text))
        return min(count, marked if "***" in text else count), max(count, rows)
    if kind == "line":
        count = len(counting.lines(text))
        return count, count
    if kind == "bullet":
        found = max(
            len(counting.bullets(text)),
            len(counting.numbered_items(text)),
            len(counting.BULLET.findall(text)),
        )
        return min(len(counting.bullets(text)) or found, found), max(
            found, len(counting.lines(text)) if not found else 0
        )
    return len(text.replace("\n", "")), len(text)


@cache
def _list_wish() -> re.Pattern[str]:
    """Return the pattern of a request for some items, such as `List three fruits`.

    Compiled once.
    """
    return re.compile(
        r"^(?:please |can you |could you |now |bitte )?(?:list|name|give(?: me| us)?|suggest"
        r"|provide|tell me|recommend|mention|share|write(?: down)?|show me|state|nenne(?: mir)?"
        r"|gib mir|liste|enumera|dime|nombra|menciona|dame|cite[zs]?|donne[z]?(?:-moi)?|énumère"
        rf"|what are|which are)\s+(?:exactly |the |top |just |only |out )*(?P<n>{_number()})\s+"
        r"(?!of\b|times?\b|per\b|hours?\b|days?\b|weeks?\b|years?\b|minutes?\b|or\b|to\b|sets?\b"
        r"|different (?:versions|responses)|versions?\b|paragraphs?\b|sentences?\b|words?\b"
        r"|lines?\b|pages?\b|bullet|stories\b|poems?\b|essays?\b|letters?\b|emails?\b|recipes?\b"
        r"|jokes?\b|riddles?\b|paragraphes?|frases?\b|phrases?\b|sätze\b|haikus?\b|verses?\b"
        rf"|stanzas?\b|dialogues?|tweets?\b|limericks?\b)(?P<what>[^.?!\n]{{2,120}})",
        re.IGNORECASE,
    )


def items_fault(instruction: str, reply: str) -> str | None:
    """Describe that a reply lists another number of items than `Name three rivers` asks for.

    None if the number is right, or if request or reply are no clear list.
    """
    found = _list_wish().match(" ".join(instruction.split()))
    if found is None:
        return None
    what = found["what"]
    if re.search(
        r"\b(?:and|und|y|et|each|every|both|for each|as well as|or"
        r" more|at least|compare|explain|along with|for (?:two|three|four|\d))\b\s",
        what,
        re.IGNORECASE,
    ) and not re.search(r"\band (?:nothing|only)\b", what):
        return None
    if re.search(r"\b(?:or more|at least|minimum)\b", instruction, re.IGNORECASE):
        return None
    number = counting.value_of(found["n"])
    if number > 60 or number < 2:
        return None
    listed = counting.items(reply)
    if listed is None:
        return None
    is_comma = "\n" not in reply.strip()
    if is_comma and abs(len(listed) - number) > 3 and number > 6:
        return None
    if len(listed) != number:
        return f"the reply lists {len(listed)}, not {number}"
    return None


Fault = Callable[[list[str], str], str | None]
