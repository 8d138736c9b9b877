"""Shows the characters of foreign text that cannot be seen: they may make it read otherwise."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_KEPT = frozenset("\n\t\u200c\u200d")  # the joiners of scripts and emoji
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_SUSPECT = re.compile(  # a superset of what is hidden, found fast
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u061c\u06dd\u070f\u0890-\u08e2\u180e\u200b\u200e-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd-\U000e0fff"
    "\U000f0000-\U0010ffff]"
)


def visible(text: str) -> str:
    """The text with its control, direction and other unseen characters as `⸨U+202E⸩`.

    Half a surrogate pair, which no page can hold, is shown in the same way.
    """
    return _SUSPECT.sub(lambda found: _shown(found[0]), text.replace("\r\n", "\n"))


@lru_cache(maxsize=1_024)
def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"⸨U+{ord(character):04X}⸩"


def one_line(text: str, most: int = 160) -> str:
    """The beginning of a text for a list, its white space in single blanks."""
    head = " ".join(text[: most * 4].split())
    return visible(head if len(head) <= most else head[: most - 1] + "…")
