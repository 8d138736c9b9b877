"""Python that need not parse: sketches, sessions, excerpts, diffs and the output of programs."""

from __future__ import annotations

import re
from typing import Final

# Lines of a session, a notebook, a template, a traceback or a sketch.
_SKETCH: Final = re.compile(
    r"^[ \t]*(?:>>>|\$ |%|!\w|\.\.\.\s|In \[\d*\]:|Out\[\d*\]:|\.\.\.$|…|pip3? install|python3? \S"
    r"|Traceback \(most recent call last\)|File \"<?\w+>?\", line \d|@@ |diff --git |--- \S"
    r"|\+\+\+ \S|\w+Error: |\?\w|\w+\?\??$)"
    r"|^[ \t]*#+ *(?:\.\.\.|…)|<[A-Za-z_][A-Za-z_ -]*>|…|\{%|%\}|\[\.\.\.\]",
    re.MULTILINE,
)
_DIFF_LINE: Final = re.compile(r"^[-+](?![-+\d.])[ \t]*\S", re.MULTILINE)
_HEADER: Final = re.compile(
    r"(?:async +)?(?:def|class|for|while|if|elif|else|try|except|finally|with|match|case)\b.*:"
    r"[ \t]*(?:#.*)?$"
)
_GOES_ON: Final = re.compile(r"(?:elif|else|except|finally|case)\b.*:")
_MORE: Final = re.compile(r"\.\.\.[ \t]*[)\]},;]?[ \t]*(?:#.*)?$|,[ \t]*\.\.\.[ \t]*\w")
_NEWER: Final = re.compile(  # syntax of Python 3.12 and later, which older versions cannot parse
    r"^[ \t]*(?:(?:async +)?def|class) +\w+\[|^[ \t]*type +\w+(?:\[[^\]\n]*\])? *="
    r"|\bexcept +\w[\w.]*(?:, *\w[\w.]*)+ *:|\bt[\"']",
    re.MULTILINE,
)
_INDENT: Final = re.compile(r"[ \t]*")


def is_sketch(code: str) -> bool:
    """Return whether code is a session, a sketch with gaps or a diff, and no whole program."""
    return _SKETCH.search(code) is not None or len(_DIFF_LINE.findall(code)) > 1


def is_excerpt(code: str) -> bool:
    """Return whether code that does not parse is a piece of a program, such as a lone header.

    An excerpt begins with the second half of a statement, leaves out a body or replaces it by a
    comment, or has an ellipsis for omitted parts.
    """
    lines = [line.rstrip() for line in code.splitlines() if line.strip()]
    if not lines or _GOES_ON.match(lines[0]):
        return True
    if any(_MORE.search(line) for line in lines):
        return True
    return any(_has_no_body(lines, at) for at, line in enumerate(lines) if _is_header(line))


def may_be_newer(code: str, reason: str) -> bool:
    """Return whether code that does not parse may be valid in a later version of Python."""
    return "f-string" in reason or _NEWER.search(code) is not None


def _is_header(line: str) -> bool:
    return _HEADER.match(line.lstrip()) is not None


def _has_no_body(lines: list[str], at: int) -> bool:
    """Return whether only comments follow a header, or another part of its statement."""
    own = _depth(lines[at])
    has_comment = False
    for line in lines[at + 1 : at + 40]:
        if line.lstrip().startswith("#"):
            has_comment = True
            continue
        if _depth(line) > own:
            return False
        return has_comment or _GOES_ON.match(line.lstrip()) is not None or _is_header(line)
    return True


def _depth(line: str) -> int:
    found = _INDENT.match(line)
    return len(found[0].expandtabs(4)) if found else 0
