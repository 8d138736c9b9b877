"""The comparison of a reply with the rules of the system message.

Only rules of plain forms are read: "never reveal X", "only answer questions about X", "do not
mention X", "always answer in X", "if asked about X, say Y". Others are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.acts.limits import check_form
from calibrator.readers.evidence.acts.recognition.languages import (
    NAMES,
    language_named,
    language_of,
)
from calibrator.readers.evidence.acts.recognition.recognising import Act, read_request
from calibrator.readers.evidence.acts.recognition.topics import (
    are_near,
    content_words,
    topics_in,
    topics_named,
)
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

MAX_RULES = 12_000  # characters that are read
MAX_SENTENCES = 120
MAX_CHINESE = 25  # characters of a Chinese rule on the language of replies

_SENTENCE: Final = pattern("rules", "sentence")
_FORBIDS_TELLING: Final = pattern("rules", "forbids_telling")
_TOKEN: Final = pattern("rules", "token")
_ONLY: Final = pattern("rules", "only")
_NOT_ABOUT: Final = pattern("rules", "not_about")
_NO_MENTION: Final = pattern("rules", "no_mention")
_IF_ASKED: Final = pattern("rules", "if_asked")
_PLACE: Final = pattern("rules", "place")
_ALWAYS: Final = pattern("rules", "always")
_ASK_FIRST: Final = pattern("rules", "ask_first")
_NAMED: Final = pattern("rules", "named")
_ASKS_NAME: Final = pattern("rules", "asks_name")
_OTHER_NAME: Final = pattern("rules", "other_name")
_IN_LANGUAGE: Final = pattern("rules", "in_language")
_IN_ANY_CASE: Final = pattern("rules", "in_any_case")
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")
_SAME_LANGUAGE: Final = pattern("rules", "same_language")


_NO_SECRETS_WORDS = """
    never always must only confidential secret json html note important rules rule warning http
    https cannot faqs strictly policy
"""
_NO_SECRETS: Final = frozenset(_NO_SECRETS_WORDS.split())


_POINTS_BACK: Final = pattern("rules", "points_back")
_CONDITIONAL: Final = pattern("rules", "conditional")
_NOT_A_TOPIC: Final = pattern("rules", "not_a_topic")
_ONLY_THIS: Final = pattern("rules", "only_this")
_ABOUT_US: Final = pattern("rules", "about_us")
_EXCEPTION: Final = pattern("rules", "exception")
_REFERS: Final = pattern("rules", "refers")
_BUT_NOT: Final = pattern("rules", "but_not")
_IN_QUOTES: Final = pattern("rules", "in_quotes")
_HAS_PRICE: Final = pattern("rules", "has_price")
_IS_NEGATIVE: Final = pattern("rules", "is_negative")
_HAS_CONDITION: Final = pattern("rules", "has_condition")
_DENIES: Final = pattern("rules", "denies")
_IS_IDENTIFIED: Final = pattern("rules", "is_identified")
_REQUESTS_SOMETHING: Final = pattern("rules", "requests_something")


@dataclass(frozen=True, slots=True)
class Rules:
    """The sentences of a system message, and the secrets that it forbids to reveal.

    Secrets are codes, passwords and quoted words in lower case, such as `kiwi77` in `Never
    share the code KIWI77.`
    """

    sentences: tuple[str, ...]
    secrets: frozenset[str]


@lru_cache(maxsize=64)
def read_rules(text: str) -> Rules:
    """Split a system message into sentences (at most 120) and find the secrets in them.

    Secrets are looked for in sentences that forbid to reveal something; one that has none and
    points back (`Never tell it.`) is about the secrets of the sentence before.
    """
    found = _SENTENCE.findall(text[:MAX_RULES])[:MAX_SENTENCES]
    sentences = tuple(each.strip() for each in found if len(each.strip()) > 5)
    secrets: set[str] = set()
    for at, sentence in enumerate(sentences):
        if not _FORBIDS_TELLING.search(sentence):
            continue
        tokens = _secrets_in(sentence)
        if not tokens and at and _POINTS_BACK.search(sentence):
            tokens = _secrets_in(sentences[at - 1])
        secrets |= tokens
    return Rules(sentences, frozenset(secrets))


def _secrets_in(sentence: str) -> set[str]:
    """Return the codes, names in capitals, passwords and quoted words of a sentence, in lower case.

    Common words in capitals such as `NEVER` or `JSON` are left out.
    """
    found = set()
    for match in _TOKEN.finditer(sentence):
        word = (match.group(1) or match.group(2) or match.group()).strip(" \"'“”").lower()
        if len(word) > 2 and word not in _NO_SECRETS:
            found.add(word)
    return found


def check_rules(conversation: Conversation, act: Act, reply: str) -> list[Finding]:
    """Return the findings of all checks by the system message, in no order; [] without rules.

    Checked are secrets, the assistant's name, the form (unless the rules have conditions or the
    reply is data), and each sentence of a known form, such as `only answer questions about X`.
    """
    if not conversation.rules.strip():
        return []
    rules = read_rules(conversation.rules[:MAX_RULES])
    findings = [
        _secret(rules, conversation, act, reply),
        _persona(conversation, reply),
        check_form(conversation.rules[:MAX_RULES], reply, act.body, "the rules")
        if act.kind != "data" and not _CONDITIONAL.search(conversation.rules[:MAX_RULES])
        else None,  # a limit may be that of one field of a reply in JSON
    ]
    request = conversation.instruction
    for sentence in rules.sentences:
        for check in (
            _scope,
            _forbidden_topic,
            _forbidden_words,
            _answer_prescribed,
            _check_demand,
        ):
            findings.append(check(sentence, request, act, reply))
        findings.append(_language(sentence, act, reply))
        findings.append(_asks_first(sentence, conversation, act, reply))
    return [each for each in findings if each is not None]


def _secret(rules: Rules, conversation: Conversation, act: Act, reply: str) -> Finding | None:
    """Find a secret of the rules in the reply, or a refusal to tell it, a finding for the reply.

    None if the request itself has the secret, or the reply neither tells nor refuses.
    """
    lower, request = reply.lower(), conversation.request.lower()
    for secret in sorted(rules.secrets):
        if secret in request:
            continue
        if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", lower):
            return Finding(False, -3.0, f"tells {secret!r}, which the rules forbid")
    if rules.secrets and act.kind == "refusal":
        about = set().union(
            *(content_words(each) for each in rules.sentences if _secrets_in(each) & rules.secrets)
        )
        if about & content_words(request):
            return Finding(True, 2.5, "declines what the rules forbid to tell")
    return None


def _scope(sentence: str, request: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `only answer questions about cooking`.

    Declining a request outside of the scope is a finding for the reply, declining one inside
    and answering one outside are findings against it. None for small talk, another kind of
    rule, and requests whose topic is unclear. `sentence` is one sentence of the rules.
    """
    match = _ONLY.search(sentence)
    if match is None or read_request(request).is_small_talk:
        return None
    scope = match.group(1)
    if language_named("in " + scope) or _NOT_A_TOPIC.match(scope):
        return None
    is_inside, is_outside = _relation(scope, request)
    declines = act.kind == "refusal" or bool(
        content_words(scope) & content_words(reply[:300]) and _ONLY_THIS.search(reply[:300])
    )
    if declines and is_outside:
        return Finding(
            True, 2.5, f"declines a request outside of {scope.strip()!r}, as the rules say"
        )
    if declines and is_inside and act.kind == "refusal":
        return Finding(
            False, -1.5, f"declines a request about {scope.strip()!r}, which the rules permit"
        )
    if is_outside and act.kind not in ("clarification", "unknown", "apology", "small_talk"):
        return Finding(
            False, -2.0, f"answers a request outside of {scope.strip()!r}, against the rules"
        )
    return None


def _relation(scope: str, request: str) -> tuple[bool, bool]:
    """Return (whether the request is inside the scope, whether it is clearly outside).

    `scope` is the topic in the rule's words, such as `cooking and baking`. Both are False if
    that is unclear.
    """
    if content_words(scope) & content_words(request):
        return True, False
    named = topics_named(scope) | topics_in(scope)
    about = topics_in(request)
    if about and named:
        return bool(about & named), not are_near(about, named)
    if not named and about & {
        "politics",
        "religion",
        "writing",
        "code",
        "mathematics",
        "history",
        "sport",
        "geography",
    }:
        return False, len(content_words(request)) >= 1 and not _ABOUT_US.search(request)
    return False, False


def _forbidden_topic(sentence: str, request: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `do not discuss politics` or `never give legal advice`.

    Declining or referring elsewhere is a finding for the reply, an answer of more than 25
    characters one against it. None for another kind of rule, a rule with an exception, and
    requests about something else.
    """
    match = _NOT_ABOUT.search(sentence)
    if match is None or _EXCEPTION.search(sentence):
        return None
    topic = match.group(1)
    named, about = topics_named(topic), topics_in(request)
    words = content_words(topic) & content_words(request)
    is_meant = bool(named & about) or (
        bool(words) and len(words) >= min(2, len(content_words(topic)))
    )
    if not is_meant:
        return None
    if act.kind == "refusal" or _refers(reply):
        return Finding(True, 2.5, f"declines to speak about {topic.strip()!r}, as the rules say")
    if act.kind in ("answer", "summary", "code", "data", "translation") and len(reply) > 25:
        return Finding(False, -1.8, f"speaks about {topic.strip()!r}, which the rules forbid")
    return None


def _refers(reply: str) -> bool:
    """Return whether the first 400 characters refer elsewhere (`please see a doctor`)."""
    return bool(_REFERS.search(reply[:400]))


def _forbidden_words(sentence: str, request: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `never mention "Acme"` or `do not mention prices`.

    Found are a quoted word, or all of one to three content words; for prices also an amount
    such as `$5`. Declining what the request asks about them is a finding for the reply. None
    for another kind of rule and a reply without the words.
    """
    match = _NO_MENTION.search(sentence)
    if match is None or _BUT_NOT.search(sentence):
        return None
    named = match.group(1)
    quoted = [each.strip().lower() for each in _IN_QUOTES.findall(named)]
    lower = reply.lower()
    for word in quoted:
        if re.search(rf"(?<!\w){re.escape(word)}", lower):
            return Finding(False, -2.5, f"says {word!r}, which the rules forbid")
    if quoted:
        return None
    wanted = content_words(named)
    if not 1 <= len(wanted) <= 3:
        return None
    is_price = bool(wanted & {"pric", "cost"}) and _HAS_PRICE.search(reply)
    if act.kind == "refusal" or _refers(reply):
        return (
            Finding(True, 1.5, "declines what the rules forbid")
            if wanted & content_words(request)
            else None
        )
    if is_price or wanted <= content_words(act.body):
        return Finding(False, -1.8, f"mentions {named.strip()!r}, which the rules forbid")
    return None


def _answer_prescribed(sentence: str, request: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `if asked about refunds, say "Call us"`.

    The prescribed text is quoted, an address, a link or a phone number; a reply that has it
    gets a finding for it, another one a finding against it. None if the rule prescribes none of
    these or the request is not about the condition.
    """
    match = _IF_ASKED.search(sentence)
    if match is None:
        return None
    condition = content_words(match.group(1)) - content_words(
        "user customer asks asked about someone wants question message contact"
    )
    overlap = condition & content_words(request)
    if not overlap or len(overlap) < min(2, len(condition)) or _IS_NEGATIVE.search(match.group(1)):
        return None
    wanted = [
        group or whole
        for whole, group in ((m.group(), m.group(1)) for m in _PLACE.finditer(match.group(2)))
    ]
    if not wanted:
        return None
    lower = " ".join(reply.lower().split())
    if any(each.lower().strip(" .") in lower for each in wanted):
        return Finding(True, 2.0, "answers as the rules prescribe for this case")
    return Finding(False, -1.5, f"does not say {wanted[0]!r}, as the rules prescribe for this case")


def _check_demand(sentence: str, request: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `always include "Ask a lawyer"`.

    A reply with the quoted text gets a weak finding for it, another one a finding against it.
    None for another kind of rule and one with a condition or a negation.
    """
    match = _ALWAYS.search(sentence)
    if match is None or _HAS_CONDITION.search(sentence):
        return None
    wanted = " ".join(match.group(1).lower().split()).strip(" .!")
    if wanted in " ".join(reply.lower().split()):
        return Finding(None, 0.8, "says what the rules always demand")
    return Finding(False, -1.8, f"does not say {match.group(1)!r}, which the rules always demand")


def _language(sentence: str, act: Act, reply: str) -> Finding | None:
    """Compare the reply's language with a rule such as `Always reply in Spanish`.

    None for another kind of rule, one with a condition or a negation, code, data, and an
    unclear language.
    """
    if len(sentence) > MAX_CHINESE and _CHINESE.search(sentence):
        return None  # a long Chinese rule usually names the language of a part of the reply
    for match in _IN_LANGUAGE.finditer(sentence):
        wanted = language_named(match.group())
        if wanted is None or _SAME_LANGUAGE.search(_IN_ANY_CASE.sub("", sentence)):
            continue
        if _DENIES.search(sentence[: match.start() + 20]) or act.kind in ("code", "data"):
            continue
        used = language_of(reply)
        if used is None:
            return None
        if used == wanted:
            return Finding(True, 1.0, f"is in {NAMES[wanted]}, as the rules demand")
        return Finding(False, -2.5, f"is in {NAMES[used]}, where the rules demand {NAMES[wanted]}")
    return None


def _asks_first(sentence: str, conversation: Conversation, act: Act, reply: str) -> Finding | None:
    """Compare the reply with a rule such as `ask for the order number before cancelling`.

    Asking is a finding for the reply; another reply to a request about the sentence's subject
    is one against it. None for another kind of rule, small talk, and once the user has given a
    number or an address.
    """
    match = _ASK_FIRST.search(sentence)
    if match is None or read_request(conversation.instruction).is_small_talk:
        return None
    wanted = content_words(match.group(1))
    users = [turn.text for turn in conversation.earlier if turn.role == "user"]
    user_text = " ".join([*users, conversation.request])
    if not wanted or _IS_IDENTIFIED.search(user_text):
        return None
    if wanted & content_words(reply) and ("?" in reply or _REQUESTS_SOMETHING.search(reply)):
        return Finding(True, 2.0, "asks first for what the rules demand")
    topic = content_words(sentence[match.end() :]) & content_words(user_text)
    if act.kind == "clarification" or not topic:
        return None
    return Finding(
        False, -1.8, f"does not ask for {match.group(1).strip()!r} first, as the rules demand"
    )


def _persona(conversation: Conversation, reply: str) -> Finding | None:
    """Compare the name that the reply gives itself with that of the rules: `Your name is Nova`.

    None if the rules give no name, the user does not ask for it, or the reply names none.
    Another name is `ChatGPT` or one in `my name is Bob`.
    """
    match = _NAMED.search(conversation.rules[:MAX_RULES])
    if match is None or not _ASKS_NAME.search(conversation.instruction[:300]):
        return None
    name = match.group(1)
    if re.search(rf"\b{name}\b", reply):
        return Finding(True, 2.0, f"gives its name as {name}, as the rules say")
    other = _OTHER_NAME.search(reply)
    if other is None:
        return None
    return Finding(
        False, -2.5, f"calls itself {other.group(1) or other.group()}, where the rules say {name}"
    )
