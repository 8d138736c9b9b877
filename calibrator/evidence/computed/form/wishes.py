"""Judges whether a reply has the form that the rules and the request wish for."""

from __future__ import annotations

import re
from typing import Final

from calibrator.evidence.computed.form.counts import count_fault, items_fault
from calibrator.evidence.computed.form.layout import (
    exact_verdict,
    kind_fault,
    layout_fault,
    order_verdict,
)
from calibrator.evidence.computed.form.wording import (
    case_fault,
    ends_fault,
    frequency_fault,
    marks_fault,
    words_fault,
)
from calibrator.evidence.computed.verdict import MAX_TEXT, Exchange, Verdict

MAX_WISHES: Final = 6000  # characters of rules and instruction in which wishes are looked for
_QUICK: Final = re.compile(
    r"\b(?:words?|sentences?|paragraphs?|lines?|bullet|bullets|characters?|upper|lower|uppercase|lowercase|capital|capitals|caps|yes|only|just|start|begin|end|ends|finish|conclude|include|contain|avoid|without|don't|not|commas?|letter|times|table|list|alphabetical\w*|order|exactly|least|most|wrap\w*|quot\w*|repeat|emojis?|markdown|number|separated|name|give|suggest|mention|nothing|one|no"
    r"|wort|wörter\w*|satz|sätze\w*|absätze\w*|zeilen?|zeichen|groß\w*|klein\w*|ja|nur|ohne|nenne|genau|palabras?|frases?|oraciones|párrafos?|líneas?|mayúsculas?|minúsculas?|solo|sólo|sin|termina|empieza|incluye|mots?|phrases?|paragraphes?|lignes?|majuscules?|minuscules?|oui|uniquement|sans|commence|cite\w*|donne\w*|viñetas|puces|máximo|maximum)\b",
    re.IGNORECASE,
)
_CONDITIONAL: Final = re.compile(
    r"\b(?:if|when|whenever|unless|for example|e\.g\.|in case|wenn|falls|si|cuando|quand|lorsque|where|would you|should you|example|otherwise|how (?:to|do|can|many|would|should)|what (?:does|is|are|happens|would|if)|why|difference|meaning|mean|function|python|code|script|program|regex|sql|excel|html)\b",
    re.IGNORECASE,
)
_ALLOWED: Final = re.compile(r"\b(?:yes or no|ja oder nein|s[íi] o no|oui ou non|alphabetical\w*)\b", re.IGNORECASE)
_SPLIT: Final = re.compile(r"(?<=[.!?])[\"”')]*\s+|\n+|(?<=[?!])(?=[A-Z])")


def verify_form(exchange: Exchange) -> Verdict | None:
    """Judge the form of a reply; a right form is reported only where nothing else was asked."""
    instruction = exchange.instruction
    if len(instruction) > MAX_WISHES or len(exchange.reply) > MAX_TEXT:
        return None
    rules = exchange.conversation.rules[:MAX_WISHES]
    if not _QUICK.search(instruction) and not _QUICK.search(rules):
        return None
    own = sentences_of(instruction)
    reply = exchange.reply.strip()
    verdict = exact_verdict(instruction, reply) or order_verdict(instruction, reply)
    if verdict is not None and not verdict.is_right:
        return verdict
    sentences = [*rule_sentences(rules), *own]
    fault = (
        kind_fault(sentences, instruction, reply)
        or count_fault(sentences, reply)
        or items_fault(instruction, reply)
        or case_fault(sentences, reply)
        or ends_fault(sentences, reply)
        or words_fault(sentences, reply)
        or frequency_fault(sentences, reply)
        or marks_fault(sentences, reply)
        or layout_fault(sentences, reply)
    )
    return Verdict(False, fault, "form") if fault else verdict


def sentences_of(text: str) -> list[str]:
    """Return the sentences of an instruction that state wishes without a condition."""
    parts = [part.strip() for part in _SPLIT.split(text) if part.strip()]
    return [part for part in parts[:80] if not _CONDITIONAL.search(part) or _ALLOWED.search(part)]


def rule_sentences(rules: str) -> list[str]:
    """Return the sentences of the rules that wish for a form of every reply."""
    kept = []
    for part in sentences_of(rules):
        if len(part) <= 300 and not re.search(r"\b(?:customers?|orders?|refund|policy|returns?|store|shop|price|days?|business|ticket|account|user(?:'s)? (?:has|is|asks))\b", part, re.IGNORECASE):
            kept.append(part)
    return kept
