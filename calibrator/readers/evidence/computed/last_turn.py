"""The check of follow-ups: whether a reply takes the user's last message into account."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.form.counting import words
from calibrator.readers.evidence.computed.form.languages import (
    language_names,
    languages_of,
    name_pattern,
)
from calibrator.readers.evidence.conversation import Turn

MAX_FOLLOW_UP: Final = 160  # characters of a follow-up
_AGAIN: Final = re.compile(
    r"\b(?:repeat|again|once more|same|sure|certain|confirm|correct|right|really|what did you say"
    r"|say that|exactly|verify|check|still|so |copy|resend|didn't|did not|go on|continue|yes|ok"
    r"|okay|thanks|why|wiederhol\w*|nochmal|sicher|repite|otra vez|seguro|répète|encore|sûr)\b"
    r"|^\W*$",
    re.IGNORECASE,
)
_SHORTER: Final = re.compile(
    r"\b(?:shorter|more concise|more briefly|shorten|condense|trim"
    r"|cut (?:it|that|this) down|briefer|kürzer|más cort[oa]|plus court)\b",
    re.IGNORECASE,
)
_LONGER: Final = re.compile(
    r"\b(?:longer|more detail(?:s|ed)?|elaborate|expand|lengthen"
    r"|länger|ausführlicher|más larg[oa]|más detalles|plus long|plus de détails)\b",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|now|please|and|can|could|you|make|write|give|say|rewrite|keep|try|but|a"
    r"|bit|little|much|even"
    r"|something|i|want|need|it|that|this|me|the|text|answer|reply|one|with|in|be|in|too|bitte"
    r"|mach|kannst|du|das|es|etwas"
    r"|hazlo|más|un|poco|fais|plus|le|version)\b[\s,]*)*(?:short\w*|concise\w*|brief\w*|condense"
    r"|trim|cut|long\w*|more"
    r"|detail\w*|elaborate|expand|lengthen|kürzer|länger|ausführlicher|corto|corta|largo|larga"
    r"|detalles|court|détails)\b",
    re.IGNORECASE,
)
_NOT: Final = re.compile(r"\b(?:not|don't|no|than|how|why|isn't|too)\b", re.IGNORECASE)


def verify_last_turn(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a follow-up message; only a wrong verdict is returned, else None.

    Wrong is a reply that repeats an earlier one, does not become shorter, longer or another
    language as in `And in Spanish?`. None for a conversation without earlier answers.
    """
    conversation = exchange.conversation
    answers = [turn for turn in conversation.earlier if turn.role == "assistant"]
    if not answers or not exchange.request.strip():
        return None
    last = answers[-1].text
    if _is_repeated(exchange, answers):
        return Verdict(False, "the reply repeats an earlier one", "turn")
    request = " ".join(exchange.request.split())
    if len(request) > MAX_FOLLOW_UP:
        return None
    return _length(request, last, exchange.reply) or _language(request, exchange.reply)


def _is_repeated(exchange: Exchange, answers: Iterable[Turn]) -> bool:
    """Return whether a reply to a new question equals one of the earlier `answers`, but for marks.

    False for replies under five words, for requests like `say that again`, and for a repeated
    request.
    """
    plain_reply = _plain_words(exchange.reply)
    if len(plain_reply.split()) < 5 or _AGAIN.search(exchange.request[:500]):
        return False
    earlier_requests = {
        _plain_words(turn.text) for turn in exchange.conversation.earlier if turn.role == "user"
    }
    if _plain_words(exchange.request) in earlier_requests or len(exchange.request.split()) < 2:
        return False
    return any(plain_reply == _plain_words(turn.text) for turn in answers)


def _plain_words(text: str) -> str:
    """Return a text in lower case with single spaces and without punctuation, for comparison."""
    return " ".join(re.sub(r"[\W_]+", " ", text[:MAX_TEXT].casefold()).split())


def _length(request: str, last: str, reply: str) -> Verdict | None:
    """Judge a reply to `make it shorter` or `longer` by its number of words.

    None unless it is wrong. `request` is on one line, and `last` is the earlier reply. Wrong is a
    reply that is not shorter, or one below 150 words that is not longer.
    """
    before, now = len(words(last[:MAX_TEXT])), len(words(reply[:MAX_TEXT]))
    if before < 8 or _NOT.search(request):
        return None
    if not _ASKS.match(request):
        return None
    if _SHORTER.search(request) and now >= before:
        return Verdict(False, f"the reply has {now} words, the one to shorten {before}", "turn")
    if _LONGER.search(request) and not _SHORTER.search(request) and now <= before and now < 150:
        return Verdict(False, f"the reply has {now} words, the one to expand {before}", "turn")
    return None


_IN: Final = (
    r"^\W*(?:(?:and|now|ok(?:ay)?|please|then|und|jetzt|y|ahora|et"
    r"|maintenant)[,\s]+)*(?:(?:the same|say (?:it|that)|write (?:it|that)|translate (?:it|that"
    r"|this)|repeat (?:it|that)|give (?:it|that)|das|lo mismo|la même chose)\s*)?(?:in|into|to|auf"
    r"|ins|en|al|au)\s+(?P<l>{})(?:[,\s]+(?:please|now|bitte|por favor|s'il (?:te|vous)"
    r" pla[iî]t))?\W*$"
)


def _language(request: str, reply: str) -> Verdict | None:
    """Return a wrong verdict if a reply to `And in Spanish?` is in another language.

    None for other requests and if the language of the reply is not clear.
    """
    found = re.match(_IN.format(name_pattern()), request, re.IGNORECASE)
    if not found:
        return None
    wanted = language_names()[found["l"].casefold()]
    spoken = languages_of(reply, 3)
    if spoken and wanted not in spoken:
        return Verdict(False, f"the reply is not in {found['l']}", "turn")
    return None


_ELLIPSIS: Final = re.compile(
    r"^\W*(?:(?:and|what about|how about|now|und|y|et|ok(?:ay)?|then|so)[,\s]+)+(?:what about |how"
    r" about |for |with |if it (?:is|was|were) )?(?P<rest>\S.{0,80}?)\s*\?*$",
    re.IGNORECASE,
)


_CHALLENGE: Final = re.compile(
    r"^\W*(?:(?:hm+|wait|no+|sorry|but|ok(?:ay)?|huh|really|actually|well|so)\b[,.!?\s]*)*"
    r"(?:are you (?:really |absolutely |quite )?(?:sure|certain)|you sure"
    r"|is that (?:really )?(?:right|correct|true)|(?:(?:can|could|would) you |please )?"
    r"(?:double[- ]?|re-?)check|(?:i think |i believe |surely )?(?:that|this|it)"
    r"(?:'s| is| can't be| cannot be| isn't| is not| seems| looks| must be| should be)\b"
    r"|that does(?:n't| not)|(?:my|the) [\w ]{2,30} (?:says?|shows?|got|gets|gives|told me)"
    r"|i (?:think|thought|get|got|calculated|have|make it)|you(?:'re| are) wrong|wrong"
    r"|bist du (?:dir )?sicher|stimmt das|das (?:ist|stimmt)"
    r"|estás segur[oa]|(?:tu es|vous êtes|t'es) sûre?)\b",
    re.IGNORECASE,
)
_ASKS_MORE: Final = re.compile(
    r"\b(?:why|how|what|which|who|where|when|explain|instead|also|if|then|warum|wie|was)\b",
    re.IGNORECASE,
)


def challenged_question(exchange: Exchange) -> str | None:
    """Return the user's question before a message that only doubts its answer: `Are you sure?`.

    None if the message asks for more, or no answer precedes it.
    """
    turns = exchange.conversation.earlier
    if len(turns) < 2 or turns[-1].role != "assistant" or turns[-2].role != "user":
        return None
    request = " ".join(exchange.request.split())
    if not _CHALLENGE.match(request) or _ASKS_MORE.search(request):
        return None
    return turns[-2].text


def completed_question(exchange: Exchange) -> str | None:
    """Return an elliptic follow-up as a whole question, built from the question before it.

    `And 30 %?` after `What is 12 % of 50?` becomes `What is 30 % of 50?`. None without an earlier
    question, or if it is not clear what is replaced.
    """
    earlier = [turn.text for turn in exchange.conversation.earlier if turn.role == "user"]
    if not earlier:
        return None
    before, found = (
        " ".join(earlier[-1].split()),
        _ELLIPSIS.match(" ".join(exchange.request.split())),
    )
    if found is None or len(before) > 200:
        return None
    rest = re.sub(r"^(?:in|into|to|to the|on|of) ", "", found["rest"], flags=re.IGNORECASE)
    prefix = found["rest"][: len(found["rest"]) - len(rest)]
    if re.fullmatch(r"[$€£]?-?[\d.,]+\s?(?:%|percent)?", rest):
        marks = list(re.finditer(r"[$€£]?\d[\d.,]*\d?\s?(?:%|percent)?|\d", before))
        is_share = rest.rstrip().endswith(("%", "percent"))
        same = [mark for mark in marks if mark[0].rstrip().endswith(("%", "percent")) == is_share]
        if len(same) != 1:
            return None
        return f"{before[: same[0].start()]}{rest} {before[same[0].end() :].lstrip()}"
    if prefix.strip() and re.fullmatch(r"[^\W\d]+(?: [^\W\d]+)?", rest):
        tail = re.search(
            r"\b(?:in|into|to) (?P<u>[^\W\d]+(?: [^\W\d]+)?)\s*\?*$", before, re.IGNORECASE
        )
        head = re.match(r"^(?P<a>how many )(?P<u>[^\W\d]+)(?P<b> .*)$", before, re.IGNORECASE)
        if tail:
            return f"{before[: tail.start('u')]}{rest}?"
        if head:
            return f"{head['a']}{rest}{head['b']}"
    return None


def with_question(exchange: Exchange, question: str) -> Exchange:
    """Return a copy of an exchange whose request is `question`, without earlier messages."""
    return Exchange(replace(exchange.conversation, request=question, earlier=()), exchange.reply)
