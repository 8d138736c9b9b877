"""A conversation, sorted into the rules, the context and the request of a reply.

System and developer messages are rules and context. Tool results and the user's messages are
context. Earlier turns of the assistant are kept apart: a reply must not be its own evidence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from calibrator.errors import NotScorableError
from calibrator.text.transcript import content_text

INSTRUCTING: Final = ("system", "developer")
REPORTING: Final = ("tool", "function")  # roles that report the result of a call
LONG_REQUEST = 400  # characters; a longer request may contain a document
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_ASKS: Final = re.compile(
    r"\?\s*$|^\W*(?:question|task|instructions?|query|q)\b\s*[:=]"
    r"|^\W*(?:please |now |then )?(?:answer|summari[sz]e|translate|extract|rewrite|list|give|write"
    r"|explain|classify|return|tell|find|decide|choose|complete|convert|compare|describe|state"
    r"|make|fix|turn|sort|correct|shorten|improve|proofread|rephrase|polish|reword|edit|put|draft"
    r"|simplify|continue|identify|check)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: its role, such as `user` or `assistant`, and its text."""

    role: str
    text: str


@dataclass(frozen=True)  # without slots, for the cached split of the request
class Conversation:
    """The messages before a reply. Every text may be empty; nothing is shortened.

    `rules` is the text of all system and developer messages, joined by blank lines. `request`
    is the text of the user's last message. `earlier` are all other turns of user and assistant,
    oldest first. `results` are the results of tool calls, oldest first. `is_complete` is False
    if a part could not be read, such as an image or a message of unknown form. `facts` are
    texts on the subject of the request that the operator provides beside the conversation.
    """

    request: str
    rules: str = ""
    earlier: tuple[Turn, ...] = ()
    results: tuple[str, ...] = ()
    is_complete: bool = True
    facts: tuple[str, ...] = ()

    @cached_property
    def _parts(self) -> tuple[str, str]:
        """The result of `split_request` on the request: (instruction, document), computed once."""
        return split_request(self.request)

    @property
    def instruction(self) -> str:
        """The request without the document that it contains: what the user wants."""
        return self._parts[0]

    @property
    def document(self) -> str:
        """The document that the request contains, such as a pasted article; may be empty."""
        return self._parts[1]


def read_conversation(messages: Sequence[Any], request: str = "") -> Conversation:
    """Sort the messages of a chat request by their roles into a `Conversation`.

    `messages` are dicts in OpenAI's form; one without a role is the user's, and one of unknown form
    counts as empty and makes the conversation incomplete. The last message of the user with a text
    becomes the conversation's request, the others are turns; `request` is used only if there is
    none.
    """
    rules: list[str] = []
    turns: list[Turn] = []
    results: list[str] = []
    is_complete = True
    for message in messages:
        role = message.get("role", "user") if isinstance(message, Mapping) else None
        text, is_read = _text(message)
        is_complete &= is_read
        if role in INSTRUCTING:
            rules.append(text)
        elif role in REPORTING:
            results.append(text)
        elif role is not None and text:
            turns.append(Turn(str(role), text))
    last = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=None)
    if last is None:
        return Conversation(request, "\n\n".join(rules), tuple(turns), tuple(results), is_complete)
    earlier = (*turns[:last], *turns[last + 1 :])
    last_text = turns[last].text
    return Conversation(last_text, "\n\n".join(rules), earlier, tuple(results), is_complete)


def _text(message: Any) -> tuple[str, bool]:
    """Return (text of a message, whether all of it could be read).

    The text is empty and the flag False for a message that is no dict or has unknown content.
    The flag is also False if the message has an image; its text is returned all the same.
    """
    if not isinstance(message, Mapping):
        return "", False
    images: list[Mapping[str, Any]] = []
    try:
        text = content_text(message.get("content"), images)
    except (NotScorableError, ValueError):
        return "", False
    return text, not images


def split_request(text: str) -> tuple[str, str]:
    """Split a request into (instruction, document); the document may be empty.

    A request of at most 400 characters on one line is all instruction. In a longer one, the
    paragraphs (or lines, if there is one paragraph) at either end that ask or command, such as
    `Summarise this.`, are the instruction and the others the document; if none asks, the last
    paragraph is the instruction. The text is returned as both if it is one paragraph of more
    than 400 characters, or if nothing asks and the last paragraph is as long.
    """
    if not text.strip() or (len(text) <= LONG_REQUEST and "\n" not in text.strip()):
        return text, ""
    parts = [part for part in _PARAGRAPH.split(text.strip()) if part.strip()]
    if len(parts) == 1:
        parts = [line for line in parts[0].splitlines() if line.strip()]
    if len(parts) == 1:
        return text, text if len(text) > LONG_REQUEST else ""
    asks = [len(part) <= LONG_REQUEST and bool(_ASKS.search(part.strip())) for part in parts]
    if not any(asks):
        asks[-1] = len(parts[-1]) <= LONG_REQUEST
    if not any(asks):
        return text, text
    chosen = [at for at, is_asking in enumerate(asks) if is_asking and at in _asking_ends(asks)]
    instruction = "\n".join(parts[at] for at in chosen or [len(parts) - 1])
    document = "\n\n".join(part for at, part in enumerate(parts) if at not in chosen)
    return instruction, document


def _asking_ends(asks: Sequence[bool]) -> set[int]:
    """Return the indexes of the paragraphs that ask and have only such ones before or after them.

    `asks` says of each paragraph whether it asks. If neither the first nor the last one does,
    the indexes of all that ask are returned.
    """
    found: set[int] = set()
    for order in (range(len(asks)), range(len(asks) - 1, -1, -1)):
        for at in order:
            if not asks[at]:
                break
            found.add(at)
    return found or {at for at, is_asking in enumerate(asks) if is_asking}
