"""Bugs of shell commands, in view of the request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.finding import MAX_SHIFT, Finding

_COMMENT: Final = re.compile(r"(?m)(?:^|\s)#[^\n]*$")
_STAGE: Final = re.compile(r"(?<!\|)\|(?!\|)&?")
_COMMAND: Final = re.compile(r"&&|\|\||;|\n")
_EARLY_DELETE: Final = re.compile(
    r"\bfind\b[^|;\n]{0,200}?\s-delete\b[^|;\n]{0,200}?\s-(?:type|i?name|mtime|mmin|size|newer|empty|i?path"
    r"|user|perm|regex)\b"
)
_LISTED: Final = re.compile(r"\bfor\s+(?P<n>\w+)\s+in\s+(?:\$\(\s*(?:ls|find)\b|`\s*(?:ls|find)\b)")
_LOOP: Final = re.compile(r"\bfor\s+(?P<n>\w+)\s+in\s+[^;\n]{0,100}[*?][^;\n]{0,100}[;\n]")
_OVER_FILES: Final = re.compile(r"\b(?:mv|cp|rm|cat|convert|ffmpeg|gzip|tar|sed|touch|chmod)\b")
_DOTS: Final = re.compile(r"\bfor\s+\w+\s+in\s+\d+\.\.\d+")
_ASSIGNS: Final = re.compile(r"(?m)^[ \t]*[A-Za-z_]\w*\s+=\s*[^=\s]|^[ \t]*\$[A-Za-z_]\w*=[^=]")
_IS_SHELL: Final = re.compile(r"^#!/|\$\(|\b(?:echo|done|fi|export|grep|sed|sudo)\b", re.MULTILINE)
_BRACKET: Final = re.compile(
    r"\b(?:if|while)\s+\[{1,2}[^\s\[]|\b(?:if|while)\s+!?\s*\[[^\[\]\n]*[^\s\]]\]\s*;"
)
_SAME_FILE: Final = re.compile(
    r"\b(?:sort|uniq|grep|sed|awk|cut|tr|head|tail|cat|jq)\b[^|;&\n>]{0,200}?\s"
    r"(?P<f>[\w./-]*\w\.\w+)\s*(?:\|[^;\n>]{0,200})?"
    r"(?<![>2&])>\s*(?P<g>[\w./-]+)(?=\s|$)"
)
_WIDE_REMOVAL: Final = re.compile(
    r"\brm\s+(?:-\w+\s+)*-\w*r\w*\s+(?:-\w+\s+)*(?:--\s+)?(?P<t>/|~|/\*|~/\*|\*|\.|\./\*|\$HOME/?"
    r"|/(?:etc|usr|var|home|bin|lib|boot)/?\*?|\"?\$\{?\w+\}?\"?/\*?)(?=\s|;|$)"
)
_SPACES: Final = re.compile(r"\b(?:spaces?|blanks?|leerzeichen|espacios|espaces)\b", re.IGNORECASE)
_MOST: Final = re.compile(
    r"\b(?:most|top|highest|largest|biggest|häufigst\w*|frequent)\b", re.IGNORECASE
)
_OLDER: Final = re.compile(r"\b(?:older|more than|over|not (?:been )?modified)\b", re.IGNORECASE)
_NEWER: Final = re.compile(
    r"\b(?:newer|less than|within|in the last|changed in|modified in|last \d+)\b", re.IGNORECASE
)
_TIME: Final = re.compile(r"-(?P<k>mtime|mmin|atime|ctime)\s+(?P<n>[+-]?\d+)")
_KEEPS: Final = re.compile(
    r"\b(?:keep\w*|without losing|retain|preserve|don't lose|not lose|still have)\b[^.?!\n]{0,60}"
    r"\b(?:changes?|work|edits?|files?)\b"
    r"|\b(?:behalte\w*|ohne)\b[^.?!\n]{0,40}\bänderungen\b|\bänderungen\b[^.?!\n]{0,40}\bbehalten\b"
    r"|\b(?:mantener|manteniendo|conserv\w+|sin perder)\b[^.?!\n]{0,40}\bcambios\b"
    r"|\b(?:gard\w+|conserv\w+|sans perdre)\b[^.?!\n]{0,40}\b(?:modifications|changements)\b",
    re.IGNORECASE,
)
_LOST_COMMIT: Final = re.compile(
    r"\bgit\s+reset\s+--hard\s+(?:HEAD[~^]\S*|origin/\S+)\s*(?:\n|&&|;)\s*"
    r"git\s+(?:branch|switch\s+-c|checkout\s+-b)\s+(?P<b>[\w./-]+)\s*(?:$|\n|&&|;)"
)


def shell_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield the findings against the shell commands of a reply, in view of the request."""
    text = _COMMENT.sub(" ", code)
    yield from _pipelines(text, request)
    yield from _destruction(text, request)
    yield from _loops(text, request)
    yield from _file_times(text, request)
    if _ASSIGNS.search(text) and _IS_SHELL.search(text):  # not the steps of a calculation
        yield Finding(None, -2.0, "an assignment of the shell has a space or a $ before its =")
    if _BRACKET.search(text):
        yield _certain_bug("the test of the shell lacks a space at its bracket")
    if _DOTS.search(text):
        yield _certain_bug("the loop goes through one word; a range needs braces")


def _certain_bug(reason: str) -> Finding:
    """Return a finding that proves the reply wrong, for this reason."""
    return Finding(False, -MAX_SHIFT, reason)


def _pipelines(text: str, request: str) -> Iterator[Finding]:
    """Find `uniq` without `sort` before it, and counts of `uniq -c` that are sorted as text."""
    for command in _COMMAND.split(text)[:200]:
        stages = [stage.strip() for stage in _STAGE.split(command)]
        for at, stage in enumerate(stages):
            words = stage.split()
            before = stages[:at]
            if (
                words[:1] == ["uniq"]
                and at
                and not any(map(_is_sorting, before))
                and "adjacent" not in request
                and "consecutive" not in request
            ):
                yield _certain_bug("uniq only joins lines that follow each other; sort comes first")
            counts = any(each.startswith("uniq -") and "c" in each.split()[1] for each in before)
            if words[:1] != ["sort"] or not counts:
                continue
            options = "".join(word for word in words[1:] if word.startswith("-"))
            following = stages[at + 1].split()[:1] if at + 1 < len(stages) else []
            if "n" not in options and "h" not in options and "g" not in options:
                yield Finding(None, -2.0, "sort without -n orders counts as text")
            elif "r" not in options and following == ["head"] and _MOST.search(request):
                yield _certain_bug("sort without -r puts the smallest counts first")


def _is_sorting(stage: str) -> bool:
    """Return whether a stage of a pipeline sorts, or counts with awk so that no order is needed."""
    return stage.split()[:1] in (["sort"], ["awk"]) and (
        stage.startswith("sort") or "asort" in stage or "++" in stage
    )


def _destruction(text: str, request: str) -> Iterator[Finding]:
    """Find commands that remove too much, or empty the file that they read.

    An example is `sort a.txt > a.txt`.
    """
    if _EARLY_DELETE.search(text):
        yield _certain_bug("find deletes before it tests; -delete comes last")
    found = _WIDE_REMOVAL.search(text)
    if found and found["t"].strip('"') not in request:
        yield Finding(None, -2.0, f"rm removes all of {found['t']}")
    for each in list(_SAME_FILE.finditer(text))[:20]:
        if each["f"] == each["g"]:
            yield _certain_bug(f"the output empties {each['f']} before it is read")
            break
    if _KEEPS.search(request) and re.search(r"\bgit\s+reset\s+--hard\b", text):
        yield _certain_bug("git reset --hard loses the changes that were to be kept")
    moved = _LOST_COMMIT.search(text)
    if moved and re.search(r"\bbranch\b", request, re.IGNORECASE) and moved["b"] in request:
        yield _certain_bug(f"the branch {moved['b']} is made after the reset, without the commit")
    if re.search(r"\bchmod\s+(?:-R\s+)?0?777\b", text) and "777" not in request:
        yield Finding(None, -1.2, "chmod 777 lets everyone write")


def _loops(text: str, request: str) -> Iterator[Finding]:
    """Find loops that tear file names at spaces, such as `for f in $(ls)` or `rm $f`.

    They are certain bugs if the request mentions spaces.
    """
    strict = bool(_SPACES.search(request))
    if _LISTED.search(text):
        reason = "the loop tears file names apart at spaces"
        yield Finding(False if strict else None, -MAX_SHIFT if strict else -1.2, reason)
    for found in list(_LOOP.finditer(text))[:10]:
        end = text.find("done", found.end())
        body = text[found.end() : end if end > 0 else len(text)][:2_000]
        bare = re.search(rf"(?<![\"\w=])\$\{{?{found['n']}\b", _without_quotes(body))
        if bare and _OVER_FILES.search(body):
            reason = f"${found['n']} without quotes is torn apart at spaces"
            yield Finding(False if strict else None, -MAX_SHIFT if strict else -0.7, reason)
            break
    if strict and re.search(r"\|\s*xargs\s+(?!-0|--null|-d)(?!.*-0)", text):
        yield _certain_bug("xargs tears file names apart at spaces")


def _without_quotes(text: str) -> str:
    """Return a text whose parts in double quotes are empty."""
    return re.sub(r'"[^"\n]*"', '""', text)


def _file_times(text: str, request: str) -> Iterator[Finding]:
    """Find a time of `find` that contradicts the request, such as `-mtime -7` for older files."""
    found = _TIME.search(text)
    if found is None:
        return
    is_older, is_newer = bool(_OLDER.search(request)), bool(_NEWER.search(request))
    sign = found["n"][:1]
    if is_older != is_newer and sign != ("+" if is_older else "-"):
        reason = f"-{found['k']} {found['n']} does not select what is "
        yield _certain_bug(reason + ("older" if is_older else "newer"))
