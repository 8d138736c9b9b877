"""Shows the invisible characters of foreign text, since they may make it read differently."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_SUSPECT = re.compile(  # a superset of the hidden characters, which is fast to search for
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u061c\u06dd\u070f\u0890-\u08e2\u115f\u1160"
    "\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202e\u205f-\u206f\u2800\u3164\ud800-\uf8ff"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff\U000110bd-\U000e0fff"
    "\U000f0000-\U0010ffff]"
)
_IGNORABLE = re.compile(  # Unicode's Default_Ignorable_Code_Point, and others without a shape
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\ufffc\ufffe\uffff\U00016fe4\U0001d159\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u1680\u2000-\u2006\u2008\u200a\u205f]"  # and blanks of typesetters, which look like any other
)
_JOINERS = "\u200c\u200d"
_PRESENTATIONS = "\ufe0e\ufe0f"  # selectors that show an emoji as text or in colours
_KEYCAPS, _KEYCAP = "#*0123456789", "\u20e3"


def visible(text: str) -> str:
    """Return the text with control, direction and other invisible characters as `⸨U+202E⸩`.

    Half a surrogate pair, which no page can hold, is shown in the same way. CRLF becomes a newline.
    """
    return _SUSPECT.sub(_in_place, text.replace("\r\n", "\n"))


def _in_place(match: re.Match[str]) -> str:
    """Return a matched character, or its code point such as `⸨U+202E⸩` where it is not visible.

    Joiners and presentation selectors stay where they belong to an emoji or a script; of two in a
    row the second one has no effect and is shown.
    """
    sign, before = match[0], match.string[match.start() - 1 : match.start()]
    is_keycap = before in [*_KEYCAPS] and match.string.startswith(_KEYCAP, match.end())
    if sign in _PRESENTATIONS and (_is_symbol(before) or is_keycap):
        return sign
    if sign in _JOINERS and before and not before.isascii() and before not in _JOINERS:
        return sign
    return _show_character(sign)


def _is_symbol(sign: str) -> bool:
    """Return whether a character is a symbol beyond ASCII, such as an emoji; False for none."""
    return bool(sign) and not sign.isascii() and unicodedata.category(sign)[0] == "S"


@lru_cache(maxsize=1_024)
def _show_character(character: str) -> str:
    """Return a character, or `⸨U+202E⸩` with its code point if it is invisible."""
    is_hidden = unicodedata.category(character) in _HIDDEN or _IGNORABLE.match(character)
    if character in _KEPT or not is_hidden:
        return character
    return f"⸨U+{ord(character):04X}⸩"


def one_line(text: str, limit: int = 160) -> str:
    """Return at most `limit` characters of a text's beginning, on one line, for a list.

    Each run of white space becomes one blank, a cut is shown by an ellipsis, and invisible
    characters are shown.
    """
    head = " ".join(text[: limit * 4].split())
    return visible(head if len(head) <= limit else head[: limit - 1] + "…")
