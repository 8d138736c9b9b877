"""The check of replies to requests for one of several labels."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.text.guarded import compile_guarded

MAX_LABELS: Final = 200
_WORDS: Final = word_set(
    "classify classified classification categorize categorise"
    " category label labels sentiment sort tag"
    " klassifiziere klassifizieren clasifica classe classez"
    " classer assign spam ham positive negative"
)
# Patterns before a list of labels, and the characters that end it.
_LEADS: Final = (
    (
        re.compile(
            r"\b(?:labels?|categor(?:y|ies)|classes|options|choices|kategorien|categorías"
            r"|catégories"
            r"|tags|one of|sentiments?|intents?|allowed values)\b[^.?!\n:]{0,60}:\s*",
            re.IGNORECASE,
        ),
        ".:?!)\n",
    ),
    (
        re.compile(
            r"\b(?:sentiment|category|label|class|topic|intent|priority|urgency|language|mood"
            r"|stance"
            r"|tone|polarity|type|kategorie)\b[^.?!\n(]{0,80}\(",
            re.IGNORECASE,
        ),
        ")\n",
    ),
    (
        re.compile(
            r"\b(?:classify|categori[sz]e|label|tag|sort|rate|klassifiziere|clasifica|classe[rz]?"
            r"|assign|identify|determine)\b[^.?!\n:]{0,160}?\b(?:as|into|under|with|one of|between"
            r"|from|als|como|comme|among|either)\s+",
            re.IGNORECASE,
        ),
        ".:;?!)\n(",
    ),
)
_SEPARATOR: Final = compile_guarded(
    r"\s*(?:,|/|\||;|\bor\b|\band\b|\boder\b|\bund\b|\bou\b|\bet\b|\bo\b)\s*", re.IGNORECASE
)
_BEFORE_LABEL: Final = compile_guarded(
    r"^(?:either|one of|exactly one of|as|an?|the|o|y|these|the following|only|just|labels?"
    r"|categories)\s+",
    re.IGNORECASE,
)
_BULLETS: Final = compile_guarded(
    r"\b(?:labels?|categor(?:y|ies)|classes|options|intents?|topics?)\b[^\n]{0,120}\n(?P<l>(?:["
    r" \t]*[-*•][ \t]*[^\n]{1,60}(?:\n|$)){2,200})",
    re.IGNORECASE,
)
_EITHER: Final = compile_guarded(
    r"^(?:is|are) (?:this|the|that)(?: following)? (?P<n>review|text|message|e-?mail|comment|tweet"
    r"|sentence|feedback|statement|post|headline|ticket)s?(?: below)? (?P<l>[a-z]+(?:, [a-z]+)*,?"
    r" or (?:not )?[a-z]+)\b[?:]",
    re.IGNORECASE,
)
_TASK: Final = compile_guarded(
    r"(?m:^)(?:is|are) (?:this|the|that) (?:\w+ ){1,3}(?:positive|negative|spam|ham|neutral)\b"
    r"|(?:^|[.!?:,]\s+|\n\s*|\bplease\s+|\byou (?:must |will |should )?|\btask is to |\band )"
    r"(?:classify|categori[sz]e|sort (?:the|this|each|it)|label (?:the|this|each|it)|assign|tag "
    r"(?:the|this)"
    r"|klassifizier\w*|clasifica|classe[rz]?)\b"
    r"|\b(?:what|which) (?:is the )?(?:category|label|class|intent|sentiment)\b",
    re.IGNORECASE,
)
_CHOICE: Final = compile_guarded(r"^\s*\(?A[.)][^\n]{1,400}\n\s*\(?B[.)]\s", re.MULTILINE)
_ONLY: Final = compile_guarded(
    r"\b(?:only|just|alone|exactly|nothing else|single|one word|one label|no explanation|label"
    r" itself|nur|solo|sólo|únicamente|uniquement|seulement)\b",
    re.IGNORECASE,
)
_NOT: Final = compile_guarded(
    r"\b(?:several|multiple|more than one|all that apply|each (?:sentence|line|item|of)|every|"
    r"(?:following|these|the) (?:sentences|reviews|items|words|messages|texts)|list|items|reviews"
    r"|sentences|json|explain|reason|why|table|code|function|and then|words|score)\b",
    re.IGNORECASE,
)


def verify_labels(exchange: Exchange) -> Verdict | None:
    """Judge whether a reply is one of the offered labels; only a no is reported."""
    if not _WORDS & exchange.vocabulary:
        return None
    if _CHOICE.search(exchange.request[:MAX_TEXT]):
        return None
    wishes = _with_bullets(exchange)
    if not _TASK.search(wishes):
        return None
    labels = labels_of(wishes)
    if len(labels) < 2:
        return None
    place = _TASK.search(wishes)
    start = place.start() if place else 0
    around = wishes[max(0, start - 200) : start + 500]
    if _NOT.search(_without_labels(around, labels)):
        return None
    return judge_label(exchange.reply, labels, is_only=bool(_ONLY.search(around)))


def _with_bullets(exchange: Exchange) -> str:
    """Return the rules and the instruction, with a bulleted list of labels that belongs to it."""
    request = exchange.request[:MAX_TEXT]
    own = request if _BULLETS.search(request) else exchange.instruction
    return f"{exchange.conversation.rules}\n{own}"[:MAX_TEXT].strip()


def _without_labels(text: str, labels: list[str]) -> str:
    for label in labels[:50]:
        text = re.sub(rf"(?<!\w){re.escape(label)}(?!\w)", " ", text, flags=re.IGNORECASE)
    return text


def labels_of(wishes: str) -> list[str]:
    """Return the labels that a prompt offers, in lower case."""
    bullets = _BULLETS.search(wishes)
    if bullets:
        items = [re.sub(r"^[ \t]*[-*•][ \t]*", "", line) for line in bullets["l"].splitlines()]
        labels = [
            re.split(r"\s*[:(–—]\s*|\s-\s", item)[0].strip(" `\"'*.") for item in items[:MAX_LABELS]
        ]
        none = re.search(r"\bor (?:with |reply )?[\"'“](\w+)[\"'”] if\b", wishes)
        if none:
            labels.append(none[1])
        return [label.casefold() for label in labels if label]
    either = _EITHER.match(wishes.strip())
    if either:
        return _split(either["l"])
    for pattern, ends in _LEADS:
        for found in pattern.finditer(wishes):
            rest = wishes[found.end() : found.end() + 600]
            places = [place for end in ends if (place := rest.find(end)) >= 0]
            labels = _split(rest[: min(places, default=len(rest))])
            if labels:
                return labels
    return []


def _split(text: str) -> list[str]:
    """Return the labels of an enumeration in lower case; none if it is prose."""
    labels = []
    for part in _SEPARATOR.split(text)[:MAX_LABELS]:
        label = part.strip(" `\"'“”*.").casefold()
        label = _BEFORE_LABEL.sub("", _BEFORE_LABEL.sub("", label))
        if label:
            labels.append(label)
    if any(len(label.split()) > 4 or not re.match(r"\w", label) for label in labels):
        return []
    return labels if len(labels) > 1 else []


def judge_label(reply: str, labels: list[str], *, is_only: bool) -> Verdict | None:
    """Judge a reply by the labels that it names: wrong for none and, with `is_only`, for several.

    Returns None for any other reply.
    """
    text = " ".join(reply[:MAX_TEXT].split()).casefold()
    named = [label for label in labels if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text)]
    named = [
        label for label in named if not any(label != other and label in other for other in named)
    ]
    shown = ", ".join(labels[:6]) + (", .." if len(labels) > 6 else "")
    if not named:
        if (len(text.split()) > 12 and not is_only) or re.search(
            r"\b(?:sorry|cannot|can't|please (?:provide|share))\b|\?$", text
        ):
            return None
        squeezed = re.sub(r"[\W_]+", "", text)
        if any(re.sub(r"[\W_]+", "", label) in squeezed for label in labels):
            return None
        if any(len(label) > 4 and label[:4] in text for label in labels) and not is_only:
            return None
        return Verdict(False, f"the label is none of {shown}", "label")
    if is_only and len(named) > 1 and len(text.split()) <= 6:
        return Verdict(False, "the reply names several labels", "label")
    return None
