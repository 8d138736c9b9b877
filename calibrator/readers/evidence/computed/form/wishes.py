"""The check of a reply's form against the wishes of the rules and the request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_list, word_set
from calibrator.readers.evidence.computed.form import counting
from calibrator.readers.evidence.computed.form.counts import count_fault, items_fault
from calibrator.readers.evidence.computed.form.layout import (
    exact_verdict,
    layout_fault,
    order_verdict,
    repeated_verdict,
)
from calibrator.readers.evidence.computed.form.short_answers import REASONS, kind_fault
from calibrator.readers.evidence.computed.form.wording import (
    case_fault,
    ends_fault,
    frequency_fault,
    letters_fault,
    marks_fault,
    words_fault,
)
from calibrator.readers.evidence.computed.structured.json_replies import value_of
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

MAX_WISHES: Final = 6000  # characters of rules and instruction that are searched for wishes


def item_letters_fault(sentences: list[str], reply: str) -> str | None:
    """Name an item that breaks a wish for letters, as in `List three fruits that start with A`.

    None if no item does, or if the reply is no list of short items.
    """
    for sentence in sentences:
        if len(sentence) > 300 or not _LIST.search(sentence) or _WHOLE.search(sentence):
            continue
        items = [_bare(item) for item in read_items(reply)]
        if len(items) < 2 or any(not 0 < len(item.split()) <= 3 for item in items):
            return None
        fault = _letters_fault(sentence, items)
        if fault:
            return fault
    return None


def read_items(reply: str) -> list[str]:
    """Return the items of a reply: a list, a line with commas, or short lines; else empty."""
    text = counting.plain_text(reply)
    found = counting.comma_items(text) if "\n" not in text.strip() else counting.items(reply)
    if found is None:
        rows = counting.lines(text)
        found = rows if all(len(row) < 40 for row in rows) else []
    return found[:MAX_ITEMS]


def _bare(item: str) -> str:
    """Return an item without its article, marks, and what follows a colon, dash or comma."""
    head = re.split(r"\s*(?::|\s[-–—]\s|\(|,)", item.strip())[0]
    return re.sub(r"^(?:the|a|an|and|or|und|y|et) ", "", head.strip(" .*_`\"'“”!"), flags=_I)


def _letters_fault(sentence: str, items: list[str]) -> str | None:
    """Name an item without the wished first or last letter or length, or with a forbidden letter.

    None if the sentence has no such wish or all items fulfil it.
    """
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


def _beginnings(text: str) -> tuple[str, ...]:
    """Return the words of a text as a tuple for str.startswith."""
    return tuple(word_list(text))


# Each check with the beginnings of words, one of which every wish for it has.
_CHECKS: Final[tuple[tuple[Callable[[list[str], str], str | None], tuple[str, ...]], ...]] = (
    (
        count_fault,
        _beginnings(
            "word sentence paragraph line bullet character wört wort sätz satz absätz zeile"
            " stichpunkt zeichen"
            " palabra oracion frase párrafo línea viñeta caracter mot phrase paragraphe ligne puce"
            " caractère"
        ),
    ),
    (
        case_fault,
        _beginnings(
            "case upper lower capital caps block großbuch kleinbuch mayúsc minúsc majusc minusc"
            " small"
        ),
    ),
    (
        ends_fault,
        _beginnings(
            "start begin open end finish conclud clos beend empieza comienza termin finaliza acaba"
            " commenc"
            " début finis conclu clôtur"
        ),
    ),
    (
        words_fault,
        _beginnings(
            "word keyword phrase term letter sentence wort wört buchstab palabra letra frase mot"
            " lettre"
        ),
    ),
    (letters_fault, _beginnings("word letter")),
    (
        item_letters_fault,
        _beginnings("letter start begin end contain buchstab letra lettre beginn empie commen"),
    ),
    (frequency_fault, _beginnings("times once twice veces fois")),
    (
        marks_fault,
        _beginnings(
            "comma komma coma virgul mark semicolon hyphen digit numeral ziffer period stop quot"
            " asterisk"
            " emoji emoticon parenthes bracket accent acento tilde akzent ausruf frage signos"
            " guillemets"
            " comillas"
        ),
    ),
    (
        layout_fault,
        _beginnings(
            "table list number bullet stichpunkt aufzähl viñeta punto puce comma komma coma virgul"
            " line"
            " zeile línea ligne markdown text block"
        ),
    ),
)
# Three letters, which each beginning has, rule most words out.
_FIRST_LETTERS: Final = frozenset(each[:3] for _, own in _CHECKS for each in own)
_KINDS: Final = word_set(
    "yes ja sí si oui one single word wort palabra mot number"
    " zahl número nombre chiffre digit digits figure"
    " integer numeral letter only just nothing no without simply solely"
)
_LISTS: Final = word_set(
    "list name give suggest provide tell recommend mention share"
    " write show state nenne gib liste enumera"
    " dime nombra menciona dame cite citez donne donnez énumère what which"
)
_IF: Final = compile_guarded(
    r"\b(?:if|when|whenever|unless|for example|e\.g\.|in case|wenn|falls|si|cuando|quand|lorsque"
    r"|example|otherwise)\b",
    re.IGNORECASE,
)
_ABOUT: Final = compile_guarded(
    r"\b(?:how (?:to|do|can|many|would|should)|what (?:does|is|are|happens|would)|why"
    r"|difference|meaning|mean"
    r"|function|python|code|script|program|regex|sql|excel|html)\b",
    re.IGNORECASE,
)
_ASKS_YOU: Final = re.compile(r"^\W*(?:please|can|could|will|would) (?:you|i)\b", re.IGNORECASE)
_ALLOWED: Final = compile_guarded(
    r"\b(?:yes or no|ja oder nein|s[íi] o no|oui ou non|alphabetical\w*)\b", re.IGNORECASE
)
# Words of rules about the user's business, which are not about the form of replies.
_BUSINESS: Final = compile_guarded(
    r"\b(?:customers?|orders?|refund|policy|returns|store|shop|price|days?|business|ticket|account"
    r"|user(?:'s)? (?:has|is|asks))\b",
    re.IGNORECASE,
)
# Beginnings of sentences of the rules that command a form of every reply.
COMMAND: Final = re.compile(
    r"^[\W\d]*(?:please|always|never|do not|don't|only|just|you (?:must|should|will|are to|always"
    r"|only|answer|reply|respond)"
    r"|(?:your|all|every|the|each) (?:answers?|repl(?:y|ies)|responses?|output)\b|answer|reply"
    r"|respond|write|use|keep|output"
    r"|format|return|avoid|end|start|begin|include|limit|give|speak|be|summari[sz]e|translate"
    r"|classify|sort|no\b|in (?:one|at most|\d)"
    r"|antworte|antworten|schreibe?|verwende|benutze|immer|responde|contesta|escribe|usa|siempre"
    r"|réponds|répondez|écris|utilise"
    r"|toujours)\b",
    re.IGNORECASE,
)
# A problem of mathematics or programming mentions forms of other things.
_PROBLEM: Final = compile_guarded(
    r"\$[^$\n]{1,200}\$|\\(?:boxed|frac|sqrt|\[|\()|^\s*(?:example \d|input|constraints)\s*:"
    r"|^\s*\(?A[.)][^\n]{1,400}\n\s*\(?B[.)]\s",  # options
    re.IGNORECASE | re.MULTILINE,
)
_WISH_AND_QUESTION: Final = re.compile(
    r"^(?P<head>[^:\n]{3,120}):\s+[^\n]*\?$"
)  # Answer briefly: why ..?
_SPLIT: Final = re.compile(r"(?<=[.!?])[\"”')]*\s+|\n+|(?<=[?!])(?=[A-Z])")


def verify_form(exchange: Exchange) -> Verdict | None:
    """Judge the form of a reply by the wishes of rules and request; None if there is no fault.

    Right only if an exact form was wanted, as in `Reply with exactly "done"`, or an alphabetical
    list.
    """
    instruction = exchange.instruction
    if len(instruction) > MAX_WISHES or len(exchange.reply) > MAX_TEXT:
        return None
    if _PROBLEM.search(exchange.request[:MAX_TEXT]) or _is_json(exchange):
        return None
    rules = exchange.conversation.rules[:MAX_WISHES]
    reply = exchange.reply.strip()
    words = exchange.vocabulary
    verdict = exact_verdict(instruction, reply) or repeated_verdict(instruction, reply)
    if verdict is None and any(word.startswith(("alphab", "alfab")) for word in words):
        verdict = order_verdict(instruction, reply)
    if verdict is not None and not verdict.is_right:
        return verdict
    sentences = [*rule_sentences(rules), *sentences_of(instruction)]
    if REASONS.search(exchange.request[:MAX_TEXT]):
        words -= _KINDS  # such a reply may be long, and its answer short
    fault = _fault(sentences, instruction, reply, words)
    return Verdict(False, fault, "form") if fault else verdict


def _is_json(exchange: Exchange) -> bool:
    """Return whether the prompt speaks of JSON and the reply is JSON, which other checks judge."""
    return ("json" in exchange.folded_text or "{" in exchange.folded_text) and (
        value_of(exchange.reply) is not None
    )


def sentences_of(text: str) -> list[str]:
    """Return the sentences of an instruction that state wishes without a condition, at most 80."""
    parts = [part.strip() for part in _SPLIT.split(text) if part.strip()]
    heads = [_WISH_AND_QUESTION.sub(r"\g<head>", part) for part in parts[:80]]
    return [part for part in heads if is_unconditional(part)]


def is_unconditional(sentence: str) -> bool:
    """Return whether a sentence has no condition such as `if` and is no question about something.

    `Can you answer briefly?` is a wish and counts.
    """
    if _IF.search(sentence):
        return False
    if _ALLOWED.search(sentence):
        return True
    if _ABOUT.search(sentence):
        return False
    return not sentence.endswith("?") or _ASKS_YOU.match(sentence) is not None


def rule_sentences(rules: str) -> list[str]:
    """Return the sentences of the rules that command a form of every reply.

    An example is `Use one word.`.
    """
    parts = map(str.strip, _SPLIT.split(rules))
    return [
        part
        for part in parts
        if 8 <= len(part) <= 300
        and COMMAND.match(part)
        and is_unconditional(part)
        and not _BUSINESS.search(part)
    ]


def _fault(sentences: list[str], instruction: str, reply: str, words: frozenset[str]) -> str | None:
    """Return the first fault that a check of the form finds, or None.

    `words` are the prompt's words in lower case; a check without any of its words there is skipped.
    """
    if _KINDS & words:
        fault = kind_fault(sentences, instruction, reply)
        if fault:
            return fault
    if _LISTS & words:
        fault = items_fault(instruction, reply)
        if fault:
            return fault
    likely = [word for word in words if word[:3] in _FIRST_LETTERS]
    for check, beginnings in _CHECKS:
        if any([word.startswith(beginnings) for word in likely]):
            fault = check(sentences, reply)
            if fault:
                return fault
    return None
