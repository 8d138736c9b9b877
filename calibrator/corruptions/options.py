"""The final option of a multiple-choice reply, changed while the working stays."""

from __future__ import annotations

import random
import re

_OPTION = re.compile(r"(?m)^[ \t]*\(?([A-J])[).:][ \t]*(.+)$")
_FINAL = re.compile(
    r"(?:answer is|answer:|answer\"\s*:|answer\*\*:?|option is|choose|correct (?:option|choice) is"
    r"|\\boxed\{|答案[是为]?[:\uff1a]?)\s*(?:\\text\{)?[\"'(*\s\[]*([A-J])\b",
    re.IGNORECASE,
)


def options_of(question: str) -> dict[str, str]:
    """The options that a question offers, letter to text; empty for fewer than two."""
    found = {letter: text.strip() for letter, text in _OPTION.findall(question)}
    return found if len(found) > 1 else {}


def final_letter(answer: str) -> re.Match[str] | None:
    """Where the reply names its final option; group 1 is the letter."""
    found = list(_FINAL.finditer(answer))
    return found[-1] if found else None


def final_option_changed(question: str, answer: str, rng: random.Random) -> str | None:
    """The reply that names another of the options in the end, with that option's text if any."""
    options, found = options_of(question), final_letter(answer)
    if found is None or found[1].upper() not in options:
        return None
    letter = found[1].upper()
    other = rng.choice(sorted(set(options) - {letter}))
    tail = answer[found.end() :]
    stated = options[letter]
    if stated and stated in tail[: len(stated) + 8]:
        tail = tail.replace(stated, options[other], 1)
    return answer[: found.start(1)] + other + tail
