"""Replies that must be a label, yes or no, one word, a number or a letter, and nothing else."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.form import counting
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
_ONLY_LABEL: Final = compile_guarded(
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

_ONLY: Final = (
    r"(?:only|just|simply|solely|nothing but|nur|solo|sólo"
    r"|únicamente|solamente|uniquement|seulement|strictly|exactly|a simple|exclusively)"
)
_YES_NO: Final = compile_guarded(
    rf"\b(?P<p1>{_ONLY}\s+)?(?:(?:answer|reply|respond|say|responses?|antworte|beantworte|responde"
    rf"|contesta|réponds|répondez)\b[^.?!\n]{{0,40}}?)?(?P<p2>\b{_ONLY}\s+)?(?:with |mit |con |par"
    rf" |using |a )*(?P<p3>{_ONLY}\s+)?(?:with |mit |con |par )*(?:either )?[\"'“‘]?"
    r"(?:yes[\"'”’]?\s*(?:or|/|and)\s*[\"'“‘]?no|ja[\"'”’]?\s*(?:oder|/)\s*[\"'“‘]?nein"
    r"|s[íi][\"'”’]?\s*(?:o|/)\s*[\"'“‘]?no|oui[\"'”’]?\s*(?:ou|/)\s*[\"'“‘]?non)[\"'”’]?"
    r"(?P<p4>[,;]?\s*(?:only|and nothing else|nothing else|without|no explanation|no other|alone"
    r"|\W*$))?",
    re.IGNORECASE,
)
_YES_OR_NO: Final = compile_guarded(r"^\W*(?:yes|no|ja|nein|s[íi]|oui|non)\W*$", re.IGNORECASE)
_ONE_WORD: Final = compile_guarded(
    r"\b(?:in|with|using|as|only|just|give|exactly) (?:exactly |only |just |a |me )*(?:one|single"
    r"|1) word\b(?! or| for each|-)|\bone[- ]word (?:answer|reply|response)s?\b|\bsingle[- ]word "
    r"(?:answer|reply|response)s?\b|\bone word only\b|\bmit (?:nur )?einem (?:einzigen )?wort\b"
    r"|\ben una (?:sola )?palabra\b|\ben un (?:seul )?mot\b|\bcon una (?:sola )?palabra\b|^one"
    r" word[:.]",
    re.IGNORECASE,
)
_NUMBER: Final = compile_guarded(
    rf"\b{_ONLY}\s+(?:give |return |reply |answer |respond |output |write |say )?(?:me |with )?"
    r"(?:the |a |one |final |resulting |die |el |le |single )*(?:number|digits?|figure|integer"
    r"|numeral|zahl|número|nombre|chiffre|numeric value|numerical value)\b(?! of| and)|\b"
    r"(?:number|zahl|número|nombre) (?:only|alone)\b|\bnothing but the number\b",
    re.IGNORECASE,
)
_LETTER: Final = compile_guarded(
    rf"\b(?:{_ONLY}\s+(?:with )?(?:the |a |one )*(?:correct |right )?(?:option |answer |choice"
    r" )?letter\b|(?:the )?letter (?:only|alone)\b|(?:answer|reply|respond) with (?:only )?(?:the"
    r"|a) (?:single )?letter\b)",
    re.IGNORECASE,
)
_BARE: Final = compile_guarded(
    r"\b(?:nothing else|no (?:introduction|preamble|intro|extra text|other text|additional text"
    r"|commentary|explanations?|comments?)|without (?:any )?(?:introduction|preamble"
    r"|explanations?|commentary|comments)|(?:output|return|reply|respond|answer|give"
    r"|write)\b[^.?!\n]{0,30}\b(?:only|just|solely|nothing but)\b|^(?:only|just)\s+(?:output"
    r"|return|reply|respond|answer|give|write|provide)\b)",
    re.IGNORECASE,
)
_OPENING: Final = compile_guarded(
    r"^\W*(?:sure|certainly|of course|absolutely|okay|ok|great|here(?:'s| is| are)|gladly|happy to"
    r"|no problem|as requested|the (?:translation|summary|answer|result|corrected"
    r"|rewritten)\b[^.\n]{0,40}\bis\b|natürlich|gerne|hier (?:ist|sind)|claro|por supuesto|aquí"
    r"|bien sûr|voici)\b",
    re.IGNORECASE,
)
REASONS: Final = compile_guarded(
    r"\b(?:step[- ]by[- ]step|think (?:about|through|carefully)|show (?:your|the) (?:work\w*"
    r"|reasoning|steps)"
    r"|reason(?:ing)? (?:first|through)|in bold|in the (?:following )?format|at the end)\b|\*\*",
    re.IGNORECASE,
)
_MORE: Final = compile_guarded(
    r"\b(?:questions?|and then|explain|why|because|reason|followed|justif\w*|sentence|begründ\w*"
    r"|then)\b",
    re.IGNORECASE,
)
_ASKS_YES: Final = compile_guarded(
    r"\b(?:answer|reply|respond|antworte|responde|réponds|yes or no[.?:]?\s*$|ja oder nein[.?]?\s*$"
    r"|s[íi] o no[.?]?\s*$|oui ou non[.?]?\s*$)",
    re.IGNORECASE,
)
_SAYS_YES: Final = compile_guarded(
    r"\b(?:yes|no|not|ja|nein|s[íi]|oui|non|true|false|correct|yep|nope)\b", re.IGNORECASE
)


def verify_labels(exchange: Exchange) -> Verdict | None:
    """Return a wrong verdict if a reply is none of the labels that a request offers; else None.

    An example is the reply `happy` to `Classify as positive or negative: ..`. None also for choices
    A, B, C, for several texts, and without two labels.
    """
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
    return judge_label(exchange.reply, labels, is_only=bool(_ONLY_LABEL.search(around)))


def _with_bullets(exchange: Exchange) -> str:
    """Return the rules and the instruction, or the request if it lists the labels as bullets."""
    request = exchange.request[:MAX_TEXT]
    own = request if _BULLETS.search(request) else exchange.instruction
    return f"{exchange.conversation.rules}\n{own}"[:MAX_TEXT].strip()


def _without_labels(text: str, labels: list[str]) -> str:
    """Return a text whose first 50 labels are replaced by spaces."""
    for label in labels[:50]:
        text = re.sub(rf"(?<!\w){re.escape(label)}(?!\w)", " ", text, flags=re.IGNORECASE)
    return text


def labels_of(wishes: str) -> list[str]:
    """Return the labels that a prompt offers, in lower case and in order; empty if there are none.

    They come from bullets, `Is this review positive or negative?`, `labels: a, b` or `classify as a
    or b`.
    """
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
    """Return the labels of an enumeration such as `spam, ham or other`, in lower case.

    Empty if it is prose, or fewer than two.
    """
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
    """Return a wrong verdict if a reply names no label or, with `is_only`, several; else None.

    A long reply without a label, a question and an apology are not judged.
    """
    text = " ".join(reply[:MAX_TEXT].split()).casefold()
    named = [label for label in labels if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text)]
    named = [
        label for label in named if not any(label != other and label in other for other in named)
    ]
    label_list = ", ".join(labels[:6]) + (", .." if len(labels) > 6 else "")
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
        return Verdict(False, f"the label is none of {label_list}", "label")
    if is_only and len(named) > 1 and len(text.split()) <= 6:
        return Verdict(False, "the reply names several labels", "label")
    return None


def kind_fault(sentences: list[str], instruction: str, reply: str) -> str | None:
    """Describe how a reply breaks a wish for yes or no, one word, only a number or only a letter.

    Also one for nothing else, as in `no explanations`. None if it breaks none. `sentences` state
    the wishes, and `instruction` is the request without its document.
    """
    text = counting.plain_text(reply)
    count = len(counting.words(text))
    is_alone = not _MORE.search(instruction)
    for sentence in sentences:
        fault = _yes_fault(sentence, text) if is_alone else None
        fault = fault or _word_fault(sentence, text, count)
        if fault:
            return fault
        is_number = count <= 3 and (count <= 1 or re.search(r"\d", text) is not None)
        if _NUMBER.search(sentence) and not is_number and "each" not in sentence:
            return "the reply is not only a number"
        if _LETTER.search(sentence) and count > 2:
            return "the reply is not only a letter"
        if _BARE.search(sentence) and _OPENING.match(text) and count > 3:
            return "there is text beside what was asked"
    return None


def _yes_fault(sentence: str, text: str) -> str | None:
    """Describe that a reply to `Answer yes or no` is neither or more than that.

    None if it is fine.
    """
    found = _YES_NO.search(sentence)
    if not found:
        return None
    is_only = any(found[key] for key in ("p1", "p2", "p3"))
    is_only = is_only or bool((found["p4"] or "").strip(" .,;?!)"))
    if is_only:
        return None if _YES_OR_NO.match(text) else "the reply is not only yes or no"
    if _ASKS_YES.search(sentence.strip()) and not _SAYS_YES.search(" ".join(text.split()[:12])):
        return "the reply is neither yes nor no"
    return None


def _word_fault(sentence: str, text: str, count: int) -> str | None:
    """Describe that a reply of `count` words is not the one word requested.

    None for a name of two.
    """
    if count < 2 or not _ONE_WORD.search(sentence):
        return None
    if re.search(
        r"\b(?:each|every|per|or two|or a|substitut\w+|replace"
        r"|synonym)\b",
        sentence,
        re.IGNORECASE,
    ):
        return None
    parts = text.split()
    is_name = count == 2 and len(parts) == 2 and all(part[:1].isupper() for part in parts)
    return None if is_name else f"the reply has {count} words, not one"
