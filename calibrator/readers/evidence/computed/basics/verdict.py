"""The result of a computation, and the views of an exchange from which it is computed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from calibrator.readers.evidence.conversation import Conversation
from calibrator.text.guarded import compile_guarded
from calibrator.text.looking_for import kept, letters_in

MAX_TEXT: Final = 20_000  # characters of a request, of the rules and of a reply that are read
MAX_SOURCE: Final = 100_000  # characters of a text that is searched for values


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a computation: whether the reply is right, why, and the kind of task.

    `reason` is a sentence for people; `task` is a word such as `date` or `json`.
    """

    is_right: bool
    reason: str
    task: str


_COMMAND: Final = re.compile(
    r"^\W*(?:please )?(?:label|sort|put|order|arrange|rank|tag|assign|identify|pull|read|fill|turn"
    r"|make|rate|analy[sz]e"
    r"|correct|improve|shorten|expand|use|reply|respond|create|generate|name|suggest|classif\w*"
    r"|clasifica|übersetze|traduce"
    r"|traduis|extrahiere|extrae|extrais|sortiere|ordne|ordena|nenne|gib|using|based on)\b",
    re.IGNORECASE,
)


class Exchange:
    """A conversation and its reply, with the views of them that several checks share."""

    def __init__(self, conversation: Conversation, reply: str) -> None:
        self.conversation = conversation
        self.reply = reply

    @kept
    def request(self) -> str:
        """The text of the user's last message."""
        return self.conversation.request

    @kept
    def instruction(self) -> str:
        """The request without a document in it.

        A leading command such as `Translate this:` is kept.
        """
        own = self.conversation.instruction
        first = self.request.strip().split("\n\n", 1)[0]
        if len(first) <= 500 and first not in own and _COMMAND.match(first):
            return f"{first}\n{own}"
        return own

    @kept
    def wishes(self) -> str:
        """The system messages and the instruction, which may state the form of the reply."""
        return f"{self.conversation.rules}\n{self.instruction}".strip()

    @kept
    def question(self) -> str:
        """The request on one line, without greetings and courtesies around it."""
        return without_courtesies(" ".join(self.request.split()))

    @kept
    def folded_text(self) -> str:
        """The system messages and the request in lower case, for a quick search."""
        return f"{self.conversation.rules}\n{self.request}".casefold()

    @kept
    def vocabulary(self) -> frozenset[str]:
        """The words of `folded_text`, without digits and marks, for a quick search."""
        return frozenset(letters_in(self.folded_text[: 2 * MAX_TEXT]))

    @kept
    def source(self) -> str:
        """All texts from which a value may be taken, separated by empty lines.

        They are the system messages, earlier messages, results of tools and the request.
        """
        earlier = [turn.text for turn in self.conversation.earlier]
        parts = (self.conversation.rules, *earlier, *self.conversation.results, self.request)
        return "\n\n".join(parts)


_COURTESY: Final = re.compile(
    r"^(?:(?:hi|hello|hey|hey there|hi there|good (?:morning|evening|afternoon)|please|quick"
    r"(?: math)?(?: question)?|quick one|question|ok(?:ay)?|so|now|then|and|also|thanks|thank you"
    r"|hallo|bitte|kurze frage|hola|por favor|bonjour|s'il (?:te|vous) pla[iî]t|help me"
    r"|(?:i have|got) a (?:quick )?question|math question|one more(?: question)?|next(?: one)?)"
    r"\s*[,.!:;?–—-]*\s+"
    r"|(?:can|could|would|will) you (?:please |kindly |quickly )?"
    r"|(?:i(?: would|'d) like to know|i (?:want|need) to know|do you know|i was wondering"
    r"|tell me|let me know|kannst du(?: mir)?(?: bitte)?(?: sagen)?|puedes(?: decirme)?"
    r"|(?:peux-tu|pouvez-vous)(?: me)?(?: dire)?)[,:]?\s+)",
    re.IGNORECASE,
)
_FAREWELL: Final = compile_guarded(
    r"[\s,.!–—-]*\b(?:please|thanks(?: a lot| in advance)?|thank you(?: very much)?|thx|bitte|danke"
    r"|por favor|gracias|s'il (?:te|vous) pla[iî]t|merci)[\s.!]*(?P<end>\?*)\s*$",
    re.IGNORECASE,
)


_FORMAT: Final = re.compile(
    r"^(?:please )?(?:answer|reply|respond|antworte|responde"
    r"|réponds)\b[^:?!\d]{0,60}[:.]\s+(?=\S)",
    re.IGNORECASE,
)


def without_courtesies(text: str) -> str:
    """Return a one-line request without greetings, thanks and a leading wish for the answer's form.

    `Hi, can you tell me what 2+2 is? Thanks!` becomes `what 2+2 is?`.
    """
    text = _FORMAT.sub("", text, count=1)
    for _ in range(4):
        found = _COURTESY.match(text)
        if found is None:
            break
        text = text[found.end() :]
    if len(text) <= 1000:
        for _ in range(2):
            text = _FAREWELL.sub(r"\g<end>", text)
    return text.strip()
