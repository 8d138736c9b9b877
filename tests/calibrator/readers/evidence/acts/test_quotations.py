"""A quotation of the conversation at the beginning of a reply is no part of its answer."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.acts import without_quotation
from calibrator.readers.evidence.conversation import Conversation, Turn

RULES = "The pool opens at 7 a.m. on weekdays. Towels cost 2 euros."
ASKED = "When does the pool open on Monday?"
ANSWER = "The pool opens at nine o'clock."
KNOWN = Conversation(ASKED, RULES, (Turn("user", "I would like to swim before work."),))


@pytest.mark.parametrize(
    "beginning",
    [
        f'You asked: "{ASKED}" ',
        f'Regarding your question, "{ASKED}": ',
        'The text says: "The pool opens at 7 a.m. on weekdays." ',
        'To quote the document: "The pool opens at 7 a.m. on weekdays." In other words: ',
        '"Towels cost 2 euros." So: ',
        "You wrote: \u201cI would like to swim before work.\u201d Hence: ",
    ],
)
def test_quotations_of_the_conversation_are_removed(beginning: str) -> None:
    """A quotation of the conversation is removed, and the rest stays."""
    assert without_quotation(beginning + ANSWER, KNOWN) == ANSWER


@pytest.mark.parametrize(
    "reply",
    [
        ANSWER,
        '"The pool opens at 7 a.m. on weekdays."',  # nothing else follows
        '"The pool opens at 7 a.m. on weekdays" means that you can come before work.',
        'The sign says: "Closed for repairs until June." Please come later.',  # not quoted
        '"Towels" are in the lobby.',
        "",
    ],
)
def test_other_replies_stay(reply: str) -> None:
    """A quotation stays if it is the answer, a part of a sentence, or from elsewhere."""
    assert without_quotation(reply, KNOWN) == reply


def test_hostile_replies_take_no_time() -> None:
    """Many quotation marks and a long context are read within a second."""
    known = Conversation(ASKED, RULES * 4_000)
    start = time.process_time()
    without_quotation('The text says: "' + 'a" ' * 50_000, known)
    assert time.process_time() - start < 1
