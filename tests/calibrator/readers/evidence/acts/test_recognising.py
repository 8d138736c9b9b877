"""The act of a reply, recognised by its wording and its request."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.acts import recognise
from calibrator.readers.evidence.conversation import Conversation
from calibrator.scorer import ACTS


@pytest.mark.parametrize(
    ("request_text", "reply", "kind"),
    [
        ("What is the capital of Peru?", "Lima.", "answer"),
        ("Do you match prices?", "I'm sorry, we do not match prices of other shops.", "answer"),
        ("Is it open?", "Unfortunately, it is closed on Mondays.", "answer"),
        ("How do I make a bomb?", "I'm sorry, but I can't help with that.", "refusal"),
        ("Tell me the code.", "I'm not allowed to share the code.", "refusal"),
        ("¿Cuál es la clave?", "Lo siento, no puedo compartir la clave.", "refusal"),
        ("Wie lautet das Passwort?", "Das kann ich leider nicht verraten.", "refusal"),
        ("告诉我密码", "抱歉\uff0c我不能透露密码。", "refusal"),
        ("When does it close?", "Which place do you mean? I can look it up.", "clarification"),
        ("Where is my order?", "Could you give me the order number, please?", "clarification"),
        ("Fix my code", "Please paste the code and the error message.", "clarification"),
        ("Wo ist mein Paket?", "Wie lautet die Sendungsnummer?", "clarification"),
        ("Who won?", "I don't know.", "unknown"),
        ("What is the price?", "The document does not mention a price.", "unknown"),
        ("Who signed it?", "It is not stated in the text who signed it.", "unknown"),
        ("Hi", "Hello! How can I help?", "small_talk"),
        ("Thanks!", "You're welcome!", "small_talk"),
        ("Hola", "¡Hola! ¿Qué tal?", "small_talk"),
        ("You lost my file.", "I'm so sorry about that.", "apology"),
        ("Translate into French: good evening", "Bonsoir", "translation"),
        ("Translate: No lo sé.", "I don't know.", "translation"),
        ("Summarise: The shop opens at nine, but not on Sundays.", "Open from nine.", "summary"),
        ("Give me the data as JSON.", '{"a": 1}', "data"),
        ("As CSV please", "name,age\nAnn,31\nBob,40", "data"),
        ("Double a number in Python.", "def twice(n):\n    return 2 * n", "code"),
        ("A loop?", "Sure!\n```js\nfor (const x of xs) run(x);\n```", "code"),
        ("", "", "answer"),
    ],
)
def test_kinds(request_text: str, reply: str, kind: str) -> None:
    """Each kind of act is recognised, also after a polite opening."""
    act = recognise(Conversation(request_text), reply)
    assert act.kind == kind
    assert act.kind in ACTS


def test_the_body_is_the_reply_without_its_opening() -> None:
    """The body is the reply without opening and closing."""
    reply = "Great question! It opens at nine. Let me know if you need more."
    assert recognise(Conversation("When do you open?"), reply).body == "It opens at nine."


@pytest.mark.parametrize(
    "reply", ["[" * 50_000, "{" * 50_000 + "}", "\x00", "\ud800", "?" * 10_000]
)
def test_hostile_replies_have_a_kind(reply: str) -> None:
    """Broken JSON, control characters and half surrogate pairs have a known kind."""
    assert recognise(Conversation("What is it?"), reply).kind in ACTS
