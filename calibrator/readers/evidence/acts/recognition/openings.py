"""The removal of greetings, praise, apologies, offers of help and quotations around a reply.

"Great question!", "I'm sorry, but" or the question, quoted, make a reply neither more nor less
right. Only sentences that say nothing else are removed, and never the whole reply. Nothing is
removed beside code, JSON, lists and quoted text. `openings.toml` holds the wording of nine
languages.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
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
MAX_SENTENCE = 300  # characters; a longer one says more than an opening
MAX_SENTENCES = 6  # most sentences that are removed at either end
LOOK_AT_SOURCE = 3_000  # characters of a request that are searched for openings
LOOK_BEHIND = 900  # characters at the end that are searched for closings
_SENTENCE: Final = pattern("openings", "sentence")
_SIGNS: Final = pattern("openings", "signs")
_COLONS: Final = (":", "\uff1a")
_STOPS: Final = " \t\r\n.!?:*_~-\u2013\u2014\u2026\u3002\uff01\uff1f\uff1a\u00a1\u00bf"
_EMOJI: Final = pattern("openings", "emoji")
_MARKED: Final = pattern("openings", "marked")
_LIST_LINE: Final = pattern("openings", "list_line")
_QUOTE_END: Final = ('"', "”", "»", "」", "』", "}", "]", "|", "`", ">", ";")
_WRITES: Final = pattern("openings", "writes")
_KEEPS_CONTENT: Final = pattern("openings", "keeps_content")
_YES_OR_NO: Final = pattern("openings", "yes_or_no")
_ASSENT: Final = pattern("openings", "assent")
_JOINT: Final = pattern("openings", "joint")
_BREAK: Final = pattern("openings", "break")


@dataclass(frozen=True, slots=True)
class OpeningPatterns:
    """The patterns of `openings.toml`, joined over all languages.

    `whole` matches a sentence that only addresses its reader (`Great question`), `lead` the
    beginning of one that goes on (`Sorry, but ..`), `greeting_lead` one that begins with a
    greeting (`Hi, ..`), `heading` an announcement before a colon (`Here is the letter`),
    `closing` a last sentence (`Let me know if it helps`).
    """

    whole: re.Pattern[str]
    lead: re.Pattern[str]
    greeting_lead: re.Pattern[str]
    heading: re.Pattern[str]
    closing: re.Pattern[str]


def without_opening(reply: str, request: str = "") -> str:
    """Return the reply without sentences that only address its reader, at either end.

    The reply is returned unchanged if nothing else remains. If the request asks to write or
    translate a text, the reply may consist of such sentences, and only announcements ("Sure!
    Here is the letter:") are removed.
    """
    is_text = bool(request) and _wants_opening(request)
    body = _without_head(reply, is_text)
    if not is_text:
        body = _without_tail(body)
    if body == reply:
        return reply
    is_answer = _YES_OR_NO.match(request[-300:]) and _ASSENT.match(reply) and len(body.split()) < 4
    has_content = any(sign.isalnum() for sign in body) and not is_opening(body)
    return body if has_content and not is_answer else reply


def without_quotation(reply: str, conversation: Conversation) -> str:
    """Return the reply without the quotation of the conversation at its beginning.

    In `You asked "Is it open today?" Yes, until 9 pm.` the answer remains. Unchanged if the
    reply does not begin with a quotation of 12 to 1,500 characters, the conversation does not
    have it, it is part of a sentence, or fewer than three words follow.
    """
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
    earlier = [turn.text for turn in conversation.earlier]
    texts = (conversation.request, conversation.rules, *conversation.results, *earlier)
    source = _plain_words("\n".join(texts))
    for end in reversed(ends[:MOST_ENDS]):
        if _plain_words(reply[start:end]) in source:
            return _text_after(reply, start, end)
    return reply


def is_opening(sentence: str) -> bool:
    """Return whether a sentence only greets, praises, thanks, apologises or offers help."""
    bare = _bare_sentence(sentence)
    return _is_whole(bare) or bool(opening_patterns().closing.fullmatch(bare))


def _text_after(reply: str, start: int, end: int) -> str:
    """Return the text after a quotation, or the whole reply if the quotation is part of a sentence.

    `start` and `end` are the positions of the quoted text. The reply also remains whole if
    fewer than three words follow.
    """
    match = _AFTER.match(reply, end + 1)
    at = match.end() if match else end + 1
    is_apart = (
        reply[: start - 1].rstrip().endswith((":", ","))
        or reply[end - 1] in ".!?"
        or bool(reply[end + 1 : at].strip())
    )
    rest = reply[at:].strip()
    return rest if is_apart and len(_WORD.findall(rest[:200])) >= MIN_REST else reply


def _plain_words(text: str) -> str:
    """Return the words and numbers of a text in lower case, with single spaces between them."""
    return " ".join(_WORD.findall(text.lower()))


@cache
def opening_patterns() -> OpeningPatterns:
    """Return the patterns of `openings.toml` for all languages, compiled once."""
    text = (
        files("calibrator.readers.evidence.acts.recognition")
        .joinpath("openings.toml")
        .read_text("utf-8")
    )
    tables = tomllib.loads(text)
    parts = {
        kind: "|".join(f"(?:{each})" for table in tables.values() for each in table[kind])
        for kind in ("whole", "lead", "greeting_lead", "heading", "closing")
    }
    return OpeningPatterns(
        **{kind: re.compile(part, re.IGNORECASE) for kind, part in parts.items()}
    )


def _wants_opening(request: str) -> bool:
    """Return whether a greeting may belong to the text that is requested: `Write a letter`.

    False if no text is requested. A translation or a paraphrase greets only if the text in the
    request does.
    """
    head = request[:600]
    if not _WRITES.search(head):
        return False
    if not _KEEPS_CONTENT.search(head):
        return True
    return any(is_opening(each) for each in _SENTENCE.findall(request[:LOOK_AT_SOURCE]))


def _is_whole(bare: str) -> bool:
    """Return whether a sentence is an opening, or several in a row ("Sure, happy to help").

    `bare` is the result of `_bare_sentence`.
    """
    whole = opening_patterns().whole
    if whole.fullmatch(bare):
        return True
    parts = _JOINT.split(bare, maxsplit=MAX_SENTENCES)
    return len(parts) > 1 and all(whole.fullmatch(part) for part in parts if part)


def _bare_sentence(sentence: str) -> str:
    """Return a sentence in the form of the patterns.

    Emojis and outer signs are removed, apostrophes are typographic, blanks single.
    """
    text = sentence[: MAX_SENTENCE + 50]
    if not text.isascii():
        text = _EMOJI.sub("", text)
    text = text.strip(_STOPS).replace("'", "\u2019")
    return " ".join(text.split())


def _without_head(reply: str, is_text: bool) -> str:
    """Return a reply without the greetings, praise and apologies at its beginning.

    At most six sentences are removed, none before code, lists and quotations, and none after
    which no letter or digit follows. With `is_text`, which says that a text was requested, only
    announcements and assent (`Sure!`) are.
    """
    known = opening_patterns()
    at = 0
    for _ in range(MAX_SENTENCES):
        if _MARKED.match(reply, at):
            break
        match = _SENTENCE.match(reply, at) or _SIGNS.match(reply, at)
        if match is None:
            break
        sentence, end = match.group(), match.end()
        bare = _bare_sentence(sentence)
        if not _goes_on(reply, end):
            break
        if sentence.rstrip().rstrip("*_").endswith(_COLONS):
            is_removed = bool(known.heading.fullmatch(bare)) or (not is_text and _is_whole(bare))
        else:
            is_removed = not bare or _is_whole(bare)
            is_removed &= not is_text or not bare or bool(_ASSENT.match(bare))
        if not is_removed:
            break
        at = end
    return reply[at:] if is_text else _without_lead(reply, at)


def _goes_on(reply: str, end: int) -> bool:
    """Return whether a letter or digit follows within 200 characters from `end`."""
    return any(sign.isalnum() for sign in reply[end : end + 200])


def _without_lead(reply: str, at: int) -> str:
    """Return the reply from `at` on, without the beginning of a sentence such as "Sorry, but".

    The rest then begins with a capital. It is unchanged if nothing else follows.
    """
    known = opening_patterns()
    is_cut = False
    for _ in range(3):
        if _MARKED.match(reply, at):
            break
        head = reply[at : at + MAX_SENTENCE].replace("'", "\u2019")
        match = known.lead.match(head)
        if match is None:
            match = known.greeting_lead.match(head)
            if match is not None and len(head[match.end() :].split()) < 3 and head.isascii():
                break
        if match is None or not _goes_on(reply, at + match.end()):
            break
        at += match.end()
        is_cut = True
    rest = reply[at:]
    return rest[:1].upper() + rest[1:] if is_cut else rest


def _without_tail(reply: str) -> str:
    """Return the reply without closing offers, wishes and apologies: `Let me know if it helps!`.

    At most six sentences are removed; unchanged if there are none.
    """
    text = reply.rstrip()
    for _ in range(MAX_SENTENCES):
        start = _last_sentence(text)
        if start is None or not any(sign.isalnum() for sign in text[:start]):
            break
        sentence = text[start:]
        bare = _bare_sentence(sentence)
        if bare and not opening_patterns().closing.fullmatch(bare):
            break
        text = text[:start].rstrip()
    return text if len(text) < len(reply.rstrip()) else reply


def _last_sentence(text: str) -> int | None:
    """Return the position where the last sentence begins, or None.

    None if the text ends in code, a list or a quotation, or its last sentence is its only one
    or longer than 300 characters.
    """
    if text.endswith(_QUOTE_END) or text.count("```") % 2:
        return None
    first = max(0, len(text) - LOOK_BEHIND)
    line = text.rfind("\n", first) + 1
    if _LIST_LINE.match(text, line):
        return None
    starts = [match.end() for match in _BREAK.finditer(text, first)]
    if not starts or len(text) - starts[-1] > MAX_SENTENCE:
        return None
    return starts[-1]
