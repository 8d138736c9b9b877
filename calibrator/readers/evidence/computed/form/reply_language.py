"""The check of a reply's language against the requested one, or the user's."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.form.languages import (
    NAMES,
    language_names,
    languages_of,
    name_pattern,
    script_of,
)
from calibrator.readers.evidence.computed.form.wishes import COMMAND

_TRANSLATE: Final = re.compile(
    r"\btranslat(?:e|ion)\b|\bhow (?:do|would|can) (?:you|i|we) say\b|\bwie sagt man\b|\bübersetz"
    r"|\btraduc|\btraduis|\btraduir|\btraduzca|翻译|翻訳",
    re.IGNORECASE,
)


_SAY: Final = re.compile(
    r"\bhow (?:do|would|can) (?:you|i|we) say\b|\bwie sagt man\b", re.IGNORECASE
)


@cache
def _target() -> re.Pattern[str]:
    """Return the pattern of a request such as `Translate this into French`; compiled once.

    Its group `t` is the language's name.
    """
    name = name_pattern()
    return re.compile(
        rf"\b(?:translat(?:e|ion|ed|ing)\b[^.?!\n]{{0,120}}?\b(?:in)?to"
        rf"|übersetz\w*\b[^.?!\n]{{0,120}}?\bins?|(?:tradu\w+)\b[^.?!\n]{{0,120}}?\b(?:al?|en|au"
        rf"|vers l')|how (?:do|would|can) (?:you|i|we) say\b[^\n]{{0,120}}?\bin"
        rf"|wie sagt man\b[^\n]{{0,120}}?\bauf)\s+(?:the |das |el |le |l')?(?P<t>{name})\b",
        re.IGNORECASE,
    )


@cache
def _wish() -> re.Pattern[str]:
    """Return the pattern of a wish such as `Answer in German`; compiled once.

    One of its groups `a` to `g` is the language's name.
    """
    name = name_pattern()
    return re.compile(
        r"\b(?:answer|reply|respond|write|speak|explain|say it|tell me|response|responses|answers"
        rf"|replies|output|be|entirely|only|please|always|now)\b[^.?!\n]{{0,60}}?\bin (?:the )?"
        rf"(?P<a>{name})\b(?: language)?(?! and\b| or\b|\s*[,/]\s*{name})"
        rf"|\b(?:antwort\w*|schreib\w*|erklär\w*)\b[^.?!\n]{{0,60}}?\bauf (?P<b>{name})\b|\b"
        rf"(?:responde\w*|escribe\w*|respuesta|explica\w*)\b[^.?!\n]{{0,60}}?\ben (?P<c>{name})\b"
        rf"|\b(?:réponds|répondez|réponse|écris|écrivez|rédigez?|explique)\b[^.?!\n]{{0,60}}?\ben "
        rf"(?P<d>{name})\b|^in (?P<e>{name})[,:]|\bin (?P<f>{name}),? (?:please|only)\b|\bnow in "
        rf"(?P<g>{name})\b",
        re.IGNORECASE | re.MULTILINE,
    )


_OPEN: Final = re.compile(
    r"\b(?:language|languages|sprache|idioma|langue|translat|übersetz|traduc|traduis|traduir"
    r"|vocabulary|dictionary|phrase|how do (?:you|i) say|means? in|meaning of|grammar|pronounce"
    r"|lyrics|poem|song|quote|lorem|correct|proofread|rewrite|paraphras|summar|code|html|python"
    r"|javascript|sql|json|regex|function|letter|email|e-mail|word)",
    re.IGNORECASE,
)


def verify_language(exchange: Exchange) -> Verdict | None:
    """Judge the language of a reply; only a wrong one gives a verdict, else None.

    It must be that of a requested translation, a wished one, or else that of the user.
    """
    is_named = bool(_first_names() & exchange.vocabulary)
    if is_named and _TRANSLATE.search(exchange.folded_text[:MAX_TEXT]):
        return _translation(exchange)
    if is_named:
        wanted = wanted_language(exchange, exchange.wishes[:MAX_TEXT])
        if wanted is not None:
            return _judge(prose_of(exchange.reply[:MAX_TEXT]), wanted, "the reply is not in {}")
        return None
    return _as_user(exchange)


@cache
def _first_names() -> frozenset[str]:
    """Return all names of languages in lower case.

    Only those of one word can be found by a look-up.
    """
    return frozenset(language_names())


def prose_of(reply: str) -> str:
    """Return a reply with code, links and quotations replaced by spaces."""
    text = re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", " ", reply, flags=re.DOTALL)
    text = re.sub(r"(?<!\w)'[^'\n]{3,100}'(?!\w)", " ", text)
    return re.sub(r"[\"“«„][^\"”»“\n]{0,300}[\"”»“]", " ", text)


def wanted_language(exchange: Exchange, wishes: str) -> str | None:
    """Return the code of the language that the instruction or else the rules want, such as `fr`.

    The last wish counts. None without one, for a negated one (`not in French`), and for several
    languages.
    """
    found = None
    for each in _wish().finditer(exchange.instruction[:MAX_TEXT]):
        found = each
    if found is None:
        rules = exchange.conversation.rules[:MAX_TEXT]
        for each in _wish().finditer(rules):
            before = re.split(r"[.\n]", rules[: each.start()])[-1]
            if not COMMAND.match((before + each[0]).strip()):
                continue
            after = re.split(r"[.\n]", rules[each.end() :])[0]
            if not re.search(r"\b(?:if|when|unless|user)\b", before + after, re.IGNORECASE):
                found = each
    if found is None:
        return None
    if re.search(r"\b(?:not|don't|never|nicht|no|sin|pas)\b", found[0], re.IGNORECASE):
        return None
    name = next(value for value in found.groupdict().values() if value)
    names = {
        code
        for word in re.findall(
            name_pattern() + r"\b", exchange.instruction[:MAX_TEXT], re.IGNORECASE
        )
        if (code := language_names().get(word.casefold()))
    }
    if len(names) > 1:
        return None
    return language_names()[name.casefold()]


def _judge(reply: str, wanted: str, reason: str, least: int = 4) -> Verdict | None:
    """Return a wrong verdict if a reply is not in the language `wanted` (a code); else None.

    None also if its language is not clear. `{}` in `reason` becomes the language's name; `least` is
    the number of words that is judged.
    """
    text = reply if languages_of(reply, least) else ""
    found = languages_of(text, least)
    if not found or wanted in found:
        script, share = script_of(reply)
        if (
            not found
            and script == "LATIN"
            and share > 0.9
            and wanted in _NOT_LATIN
            and len(reply.split()) >= least
        ):
            return Verdict(False, reason.format(NAMES[wanted]), "language")
        return None
    if wanted in ("zh", "ja", "ko", "hi", "ar", "fa", "ur") or len(found) <= 2:
        return Verdict(False, reason.format(NAMES[wanted]), "language")
    return None


_NOT_LATIN: Final = word_set(
    "ru uk bg zh ja ko ar fa he el th hi mr ne bn ta te kn ml gu pa si km ka hy am ur"
)


def _translation(exchange: Exchange) -> Verdict | None:
    """Return a wrong verdict for a translation in another language or a copy of the text.

    Else None. None also if several target languages are named or comments are requested.
    """
    rules = exchange.conversation.rules
    place = rules if _target().search(rules[:MAX_TEXT]) else exchange.instruction
    targets = [each for each in _target().finditer(place[:MAX_TEXT])]
    codes = {language_names()[each["t"].casefold()] for each in targets}
    if len(codes) != 1:
        return None
    target = codes.pop()
    text = text_to_translate(exchange)
    translation = exchange.reply.strip()
    if text and _is_copied(translation, text) and target not in languages_of(text):
        return Verdict(False, "the text is not translated", "translation")
    wishes = exchange.wishes[:MAX_TEXT].replace(text, " ") if text else exchange.wishes[:MAX_TEXT]
    if re.search(
        r"\b(?:and then|explain|criti\w*|comment|word by word|both"
        r"|table|pronunciation|grammar|notes?)\b",
        wishes,
        re.IGNORECASE,
    ):
        return None
    if _SAY.search(exchange.request[:MAX_TEXT]):
        return None  # the answer may be a sentence about the translation
    verdict = _judge(translation, target, "the translation is not in {}", least=3)
    if verdict is None:
        return None
    return Verdict(False, verdict.reason, "translation")


def _is_copied(translation: str, text: str) -> bool:
    """Return whether the reply `translation` repeats the text to translate.

    False for names and one word.
    """
    words = text.split()
    is_mostly_names = 2 * sum(word[:1].islower() for word in words) < len(words)
    is_mostly_names = is_mostly_names and not languages_of(text, 2)
    if (len(words) < 2 or is_mostly_names) and script_of(text)[0] in ("LATIN", ""):
        return False
    reply, own = _plain_words(translation), _plain_words(text)
    return reply == own or (len(own) > 15 and own in reply and len(reply) < 1.5 * len(own))


def _plain_words(text: str) -> str:
    """Return a text in lower case with single spaces and without punctuation."""
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def text_to_translate(exchange: Exchange) -> str:
    """Return the text that a request wants translated; empty if it is not clear.

    It is the text after `into French:`, a quotation, or the whole request if the rules want a
    translation.
    """
    request = exchange.request[:MAX_TEXT].strip()
    found = _target().search(request)
    if found is None:
        return request if _target().search(exchange.conversation.rules[:MAX_TEXT]) else ""
    rest = request[found.end() :]
    after = re.match(r"[^:\n\"“'«]{0,60}(?:[:\n]|(?=[\"“«']))\s*(?P<t>.+)", rest, re.DOTALL)
    if after:
        return after["t"].strip().strip("\"“”'«»").strip()
    quoted = re.search(r"[\"“«'](?P<t>[^\"”»]{3,})[\"”»']", request)
    return quoted["t"] if quoted else ""


def _as_user(exchange: Exchange) -> Verdict | None:
    """Return a wrong verdict if a reply is not in the user's language; else None.

    None also if the request is long or quotes a text, if any language was named, or if a language
    is not clear.
    """
    conversation, request = exchange.conversation, exchange.request
    if len(request) > 1500 or "\n" in request.strip() or '"' in request or "“" in request:
        return None
    if re.search("[語语文]|어로|말로", request):  # the name of a language, in Japanese and the like
        return None
    own = languages_of(request, 5)
    if len(own) != 1:
        return None
    (language,) = own
    reply = exchange.reply[:1500]
    found = languages_of(reply, 5)
    if not found or language in found or len(found) > 2:
        return None
    found = languages_of(prose_of(reply), 5)
    if not found or language in found:
        return None
    user_texts = [turn.text for turn in conversation.earlier if turn.role == "user"]
    if _OPEN.search("\n".join((conversation.rules, request, *user_texts))[:MAX_TEXT]):
        return None
    if any(languages_of(text, 8) & found for text in (conversation.rules, *user_texts[-1:])):
        return None
    name = NAMES["zh" if "zh" in found else min(found)]
    return Verdict(False, f"the user writes {NAMES[language]}, the reply is in {name}", "language")
