"""The detection of replies in a wrong tone (insults, lectures, du for Sie) or to a wrong person."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.editing import is_editing
from calibrator.readers.evidence.acts.recognition.recognising import Act, RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

HEAD = 2_000  # characters of a reply
_RULES: Final = tuple(
    (pattern("addressing", wish), pattern("addressing", sign), reason)
    for wish, sign, reason in (
        ("formal_de", "du", "says du where Sie was wanted"),
        ("informal_de", "sie", "says Sie where du was wanted"),
        ("formal_es", "tu", "says tú where usted was wanted"),
        ("formal_fr", "tu_fr", "says tu where vous was wanted"),
    )
)
_MIXED: Final = tuple(
    (pattern("addressing", opening), pattern("addressing", sign), reason)
    for opening, sign, reason in (
        ("opens_de", "du", "says du in a text that begins formally"),
        ("opens_es", "tu", "says tú in a text that begins formally"),
        ("opens_fr", "tu_fr", "says tu in a text that begins formally"),
    )
)
_FORMAL: Final = pattern("addressing", "formal_en")
_NOT_FORMAL: Final = pattern("addressing", "not_formal")
_CASUAL: Final = pattern("addressing", "casual")
_GREETING: Final = pattern("addressing", "greeting")
_NOBODY_WORDS = """
    there all everyone everybody team sir madam friend friends world again you folks guys
    zusammen customer colleague colleagues neighbour neighbor hiring manager recipient madame
    monsieur mademoiselle sirs herr frau damen herren señor señora name support
"""
_NOBODY: Final = frozenset(_NOBODY_WORDS.split())
OPENING = 220  # first characters of a reply that are searched for a feeling
MAX_MESSAGE = 600  # most characters of a personal message
MIN_LECTURE = 15  # words
_LOSS: Final = pattern("tone", "loss")
_JOY: Final = pattern("tone", "joy")
_CONGRATULATES: Final = pattern("tone", "congratulates")
_CONDOLES: Final = pattern("tone", "condoles")
_INSULTS: Final = pattern("tone", "insults")
_WANTS_RUDENESS: Final = pattern("tone", "wants_rudeness")
_CHATS: Final = pattern("tone", "chats")
_ASKS: Final = pattern("tone", "asks")
_SPEAKS: Final = pattern("tone", "speaks")
_WRITES: Final = pattern("addressing", "writes")


def find_wrong_feeling(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find congratulations on a loss (`my dog died`) or condolences on good news (`I passed`).

    Read are messages of up to 600 characters that do not ask for a letter, and the first 220
    characters of the reply. None if the message has both or neither feeling, or the reply has.
    """
    message = conversation.request
    if len(message) > MAX_MESSAGE or _WRITES.search(message):
        return None
    is_loss, is_joy = bool(_LOSS.search(message)), bool(_JOY.search(message))
    if is_loss == is_joy:
        return None
    head = reply[:OPENING]
    congratulates, condoles = bool(_CONGRATULATES.search(head)), bool(_CONDOLES.search(head))
    if congratulates == condoles:
        return None
    if is_loss and congratulates:
        return Finding(False, -3.0, "congratulates on bad news")
    if is_joy and condoles:
        return Finding(False, -2.5, "condoles on good news")
    return None


def find_insult(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that insults its reader, as in `you are an idiot`.

    None if the conversation asks for rudeness (a roast, a role play), the user says the same
    words, the reply is code or a translation, or the words are inside quotation marks.
    """
    found = _INSULTS.search(reply[:4_000])
    if found is None or _WANTS_RUDENESS.search(f"{conversation.rules}\n{conversation.request}"):
        return None
    if found.group().lower() in conversation.request.lower() or act.kind in ("translation", "code"):
        return None
    before = reply[max(0, found.start() - 40) : found.start()]
    if before.count('"') % 2 or "“" in before:
        return None  # quoted, or an example
    return Finding(None, -2.0, f"is rude: {found.group()!r}")


def find_lecture(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a general text without "you" or "I" in reply to a user who only chats: `ugh, so tired`.

    None if the message has over 200 characters or several lines, asks for something, or comes with
    rules, and if the reply is shorter than 15 words, is no answer, or speaks to the user.
    `request` is not used.
    """
    message = conversation.request.strip()
    if len(message) > 200 or "\n" in message or conversation.rules.strip():
        return None
    if _ASKS.search(message) or not _CHATS.search(message) or act.kind != "answer":
        return None
    if len(reply.split()) < MIN_LECTURE or _SPEAKS.search(reply[:2_000]):
        return None
    return Finding(None, -2.0, "lectures a user who only chats")


def find_wrong_register(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that is familiar although it had to be formal, or the other way round.

    Examples are `du` where the rules or the request want `Sie`, `du` after `Sehr geehrte Frau
    ..`, and `gonna` in a text that had to be formal. None for code, data and refusals, and
    without such a wish or opening.
    """
    if act.kind in ("code", "data", "refusal"):
        return None
    rules = conversation.rules[:HEAD]
    wish = f"{rules}\n{request.text}" if rules else request.text
    head = reply[:HEAD]
    for rule, sign, reason in _RULES:
        if rule.search(wish) and sign.search(head):
            return Finding(None, -2.0, reason)
    for opening, sign, reason in _MIXED:
        if opening.search(head) and sign.search(head) and "dialog" not in wish.lower():
            return Finding(None, -2.0, reason)
    formal = _FORMAL.search(request.text)
    is_text = _WRITES.search(request.text) or is_editing(conversation)
    if formal and is_text and not _NOT_FORMAL.search(request.text):
        casual = _CASUAL.search(head)
        if casual:
            return Finding(
                None, -1.5, f"is casual where a formal text was wanted: {casual.group()!r}"
            )
    return None


def find_wrong_addressee(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a letter whose greeting names somebody whom the conversation never names: `Dear Bob,`.

    None unless the request asks for a letter or message and has a capitalised word besides its
    first; also None for general greetings (`Dear all`) and without a greeting.
    """
    if not _WRITES.search(request.text) or act.kind in ("code", "data", "translation"):
        return None
    found = _GREETING.match((act.body or reply)[:200])
    if found is None:
        return None
    greeted = found["n"].split()[-1].strip(".'\u2019-")
    known = f"{conversation.rules}\n{conversation.request}"
    earlier = "\n".join(turn.text for turn in conversation.earlier)
    if greeted.lower() in f"{known}\n{earlier}".lower() or greeted.lower() in _NOBODY:
        return None
    names = [word for word in request.text.split()[1:] if word[:1].isupper() and len(word) > 2]
    if not names or len(greeted) < 3:
        return None
    return Finding(None, -1.5, f"is addressed to {greeted}, whom nobody named")
