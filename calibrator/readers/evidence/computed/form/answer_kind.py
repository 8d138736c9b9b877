"""The wishes for yes or no, one word, a number or a letter, and nothing else."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.form import counting
from calibrator.text.guarded import compile_guarded

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


def kind_fault(sentences: list[str], instruction: str, reply: str) -> str | None:
    """Describe how a reply breaks a wish for yes or no, one word, a number or a letter; or None."""
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


def _yes_fault(sentence: str, text: str) -> str | None:
    """Return the fault of a reply to a sentence that asks for yes or no, or None."""
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
    """Return the fault of a reply of `count` words to a wish for one word, or None."""
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
