"""The removal of a quotation of the conversation from the beginning of a reply.

A quotation of the question or the document makes a reply neither more nor less right.
"""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation

MIN_QUOTED: Final = 12  # characters; shorter quotations are names and words
MAX_QUOTED: Final = 1_500  # characters
MIN_REST: Final = 3  # words that must follow; otherwise the quotation is the answer
MOST_ENDS: Final = 12  # quotation marks that are tried as the end
_BEGIN: Final = pattern("quotations", "begin")
_END: Final = pattern("quotations", "end")
_AFTER: Final = pattern("quotations", "after")
_WORD: Final = re.compile(r"\w+")


def without_quotation(reply: str, conversation: Conversation) -> str:
    """Return the reply without the quotation of the conversation at its beginning."""
    match = _BEGIN.match(reply)
    if match is None:
        return reply
    start = match.end()
    ends = [
        each.start()
        for each in _END.pattern.finditer(reply, start + MIN_QUOTED, start + MAX_QUOTED)
    ]
    if not ends:
        return reply
    said = [turn.text for turn in conversation.earlier]
    texts = (conversation.request, conversation.rules, *conversation.results, *said)
    source = _squeeze("\n".join(texts))
    for end in reversed(ends[:MOST_ENDS]):
        if _squeeze(reply[start:end]) in source:
            return _text_after(reply, start, end)
    return reply


def _text_after(reply: str, start: int, end: int) -> str:
    """Return the text after a quotation, or the reply if the quotation is part of a sentence."""
    match = _AFTER.match(reply, end + 1)
    at = match.end() if match else end + 1
    is_apart = (
        reply[: start - 1].rstrip().endswith((":", ","))
        or reply[end - 1] in ".!?"
        or bool(reply[end + 1 : at].strip())
    )
    rest = reply[at:].strip()
    return rest if is_apart and len(_WORD.findall(rest[:200])) >= MIN_REST else reply


def _squeeze(text: str) -> str:
    """Return the letters and digits of a text in lower case, with single spaces between words."""
    return " ".join(_WORD.findall(text.lower()))
