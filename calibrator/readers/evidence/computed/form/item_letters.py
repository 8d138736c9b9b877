"""Lists whose items must have, or must not have, certain letters or a number of letters."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.form import counting
from calibrator.text.guarded import compile_guarded

MAX_ITEMS: Final = 60
_I: Final = re.IGNORECASE
_Q: Final = r"[\"“”'‘’«»„`]?"
_NAMED: Final = r"(?:the letters?|den buchstaben|dem buchstaben|la letra|la lettre)"
_LETTER: Final = rf"(?:{_NAMED} |letter )?{_Q}(?P<l>[A-Za-z]){_Q}(?!\w|\.\w)"
_NONE: Final = compile_guarded(
    rf"\b(?:none of (?:which|them|these)|(?:that|which) (?:don't|do not|doesn't|does not|never)"
    rf"|not|without|ohne|(?:que|qui) (?:no|ne)) ?(?:\w+ )?(?:contain\w*|ha(?:s|ve)|includ\w+"
    rf"|using|us(?:es|e)|contengan?|tengan?|contien\w+(?: pas)?|enthalten)?\s?{_NAMED} "
    rf"{_Q}(?P<l>[A-Za-z]){_Q}(?!\w|\.\w)",
    _I,
)
_START: Final = compile_guarded(
    rf"\b(?:start(?:s|ing)?|begin(?:s|ning)?|beginn\w+|empie\w+|comien\w+|commen[cç]\w+)"
    rf" (?:with|mit|con|par) {_LETTER}"
    rf"|\bmit (?:{_NAMED} )?{_Q}(?P<m>[A-Z]){_Q} (?:beginn|anfang)\w*",
    _I,
)
_END: Final = compile_guarded(
    rf"\b(?:end(?:s|ing)?|terminan?|finiss\w+|enden?) (?:with|in|mit|en|auf|par) {_LETTER}",
    _I,
)
_LENGTH: Final = compile_guarded(
    r"\b(?P<n>\d{1,2}|three|four|five|six|seven|eight|nine|ten)[- ]letter (?P<w>[a-z]+s)\b"
    r"|\bwith (?:exactly )?(?P<m>\d{1,2}|three|four|five|six|seven|eight|nine|ten) letters\b",
    _I,
)
_LIST: Final = re.compile(
    r"\b(?:\d{1,2}|two|three|four|five|six|seven|eight|nine|ten|some|a list of|several|zwei|drei"
    r"|vier"
    r"|fünf|dos|tres|cuatro|cinco|deux|trois|quatre|cinq) (?:\w+[- ]){0,4}?[^\W\d_]+",
    _I,
)
_WHOLE: Final = re.compile(
    r"\b(?:sentence|story|poem|paragraph|every word|each word|words? (?:in|of) (?:the|your|each)"
    r"|python"
    r"|code|regex|function|except|or|letters? (?:in|of) the|last name|surname|each sentence"
    r"|line)\b",
    _I,
)


def item_letters_fault(sentences: list[str], reply: str) -> str | None:
    """Name an item that breaks a wish for the letters of all items, or return None."""
    for sentence in sentences:
        if len(sentence) > 300 or not _LIST.search(sentence) or _WHOLE.search(sentence):
            continue
        items = [_bare(item) for item in read_items(reply)]
        if len(items) < 2 or any(not 0 < len(item.split()) <= 3 for item in items):
            return None
        fault = _fault(sentence, items)
        if fault:
            return fault
    return None


def read_items(reply: str) -> list[str]:
    """Return the items of a reply that is a list, a line with commas or lines alone."""
    text = counting.plain_text(reply)
    found = counting.comma_items(text) if "\n" not in text.strip() else counting.items(reply)
    if found is None:
        rows = counting.lines(text)
        found = rows if all(len(row) < 40 for row in rows) else []
    return found[:MAX_ITEMS]


def _bare(item: str) -> str:
    head = re.split(r"\s*(?::|\s[-–—]\s|\(|,)", item.strip())[0]
    return re.sub(r"^(?:the|a|an|and|or|und|y|et) ", "", head.strip(" .*_`\"'“”!"), flags=_I)


def _fault(sentence: str, items: list[str]) -> str | None:
    found = _NONE.search(sentence)
    if found:
        letter = found["l"].casefold()
        bad = next((item for item in items if letter in item.casefold()), None)
        return None if bad is None else f'"{bad}" has the letter {letter}'
    for pattern, name in ((_START, "start"), (_END, "end")):
        found = pattern.search(sentence)
        if found and "not " not in sentence and "n't" not in sentence:
            letter = next(filter(None, found.groups())).casefold()
            at = 0 if name == "start" else -1
            bad = next((item for item in items if item.casefold()[at] != letter), None)
            return None if bad is None else f'"{bad}" does not {name} with {letter}'
    found = _LENGTH.search(sentence)
    if found:
        number = counting.value_of(found["n"] or found["m"])
        bad = next((item for item in items if len(item) != number and item.isalpha()), None)
        return None if bad is None else f'"{bad}" has {len(bad)} letters, not {number}'
    return None
