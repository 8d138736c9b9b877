"""The pieces of a reply that the reader judges, and the facts of a context without instructions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from calibrator.readers.evidence.context.comparison import sentences_of
from calibrator.readers.evidence.context.passages import FREQUENT, words_of
from calibrator.readers.evidence.conversation import Conversation

MIN_PIECE_WORDS: Final = 6  # a sentence with fewer words says too little alone
MIN_FACT_WORDS: Final = 6  # a context with fewer words supports no reply
SEARCHED: Final = 4_000  # characters that are searched
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
_INSTRUCTS: Final = re.compile(
    r"^\W*(?:you are|you're|you will|you must|you should|you can|you have|your (?:task|job|role"
    r"|name|goal|answers?)|act as|answer|reply|respond|use|be |speak|write|return|give|provide"
    r"|always|never|do not|don't|avoid|keep|make sure|ensure|please|help|assist|if (?:you|the"
    r" (?:answer|user|question|documents?|context|information))|only (?:answer|use|reply|respond)"
    r"|today is|stay|remember|follow|think|below|here (?:is|are)|the following|based on|context"
    r"|documents?|policy|rules?|instructions?|note)\b[^\n]*$",
    re.IGNORECASE,
)


# words of the user's earlier turns together; fewer are talk, and no context
MIN_SAID_WORDS: Final = 30


def facts_of(rules: str) -> str:
    """Return a system message without the sentences that instruct the assistant."""
    parts = [part for part in _SENTENCE.split(rules) if part.strip()]
    kept = [part for part in parts if not (len(part) < 240 and _INSTRUCTS.match(part.strip()))]
    return "\n".join(kept)


MIN_DOCUMENT_WORDS: Final = 20  # a shorter text beside a question belongs to the question
_NO_DOCUMENT: Final = re.compile(
    r"^\W{0,3}[A-E][.):]\W?\s|^\W{0,3}\(?1[.)]\s.*\n\W{0,3}\(?2[.)]\s"  # options, numbered choices
    r"|```|\$[^$\n]+\$|\\\\|\\frac|^\s*(?:def|class|import|#include|public|function)\b"
    r"|^\W*(?:sample )?(?:inputs?|outputs?|constraints|examples?)\b[ \d]*:?\s*$"
    r"|\bCREATE TABLE\b|\"(?:parameters|properties)\"\s*:",
    re.MULTILINE | re.IGNORECASE,
)


def own_document(conversation: Conversation) -> str:
    """Return the document that the request contains beside its instruction; empty if there is none.

    A document is separated by an empty line and has some length. Options, formulas, code and
    descriptions of tools are part of the question.
    """
    request = conversation.request
    if "\n\n" not in request or _NO_DOCUMENT.search(request[:SEARCHED]):
        return ""
    document = conversation.document
    return document if len(words_of(document[:SEARCHED])) >= MIN_DOCUMENT_WORDS else ""


def documents_of(conversation: Conversation) -> list[str]:
    """Return the texts that a reply may rely on; empty if they hold hardly a fact.

    They are the operator's facts, however short, system messages without instructions, earlier
    turns of the user, results, and the document in the request.
    """
    said = [turn.text for turn in conversation.earlier if turn.role == "user"]
    if sum(len(words_of(text[:SEARCHED])) for text in said) < MIN_SAID_WORDS:
        said = []
    own = own_document(conversation)
    found = [facts_of(conversation.rules), *said, *conversation.results, own]
    found = [text for text in found if text.strip()]
    facts = {word for text in found for word in words_of(text[:SEARCHED]) if word not in FREQUENT}
    return [*conversation.facts, *(found if len(facts) >= MIN_FACT_WORDS else [])]


def pieces_of(reply: str) -> list[str]:
    """Return the sentences of a reply; one with few words is joined with the next one."""
    found: list[str] = []
    is_short = False
    for sentence in sentences_of(reply):
        if is_short:
            found[-1] = f"{found[-1]} {sentence}"
        else:
            found.append(sentence)
        is_short = len(words_of(found[-1])) < MIN_PIECE_WORDS
    if is_short and len(found) > 1:
        last = found.pop()
        found[-1] = f"{found[-1]} {last}"
    return found


def most_doubtful(pieces: Sequence[str], covered: Sequence[float], count: int) -> list[int]:
    """Return the indexes of the `count` pieces that the context covers least, in order."""
    order = sorted(range(len(pieces)), key=lambda at: (covered[at], at))
    return sorted(order[:count])
