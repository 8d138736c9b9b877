"""The code blocks of a reply, and the language of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT
from calibrator.text.guarded import compile_guarded

MAX_BLOCKS: Final = 20
_FENCE: Final = compile_guarded(
    r"^[ \t]*(?:```+|~~~+)[ \t]*(?P<lang>[\w+#.-]*)[^\n]*$", re.MULTILINE
)
_INLINE: Final = compile_guarded(r"`(?P<code>[^`\n]{6,400})`")
LANGUAGES: Final = {
    "python": "python", "py": "python", "python3": "python", "javascript": "javascript",
    "js": "javascript", "jsx": "javascript", "mjs": "javascript", "node": "javascript",
    "typescript": "javascript", "ts": "javascript", "tsx": "javascript", "sql": "sql",
    "sqlite": "sql", "mysql": "sql", "postgresql": "sql", "postgres": "sql", "tsql": "sql",
    "bash": "shell", "sh": "shell", "shell": "shell", "zsh": "shell", "console": "shell",
    "java": "java", "c": "c", "cpp": "c++", "c++": "c++", "cs": "c#", "csharp": "c#",
    "c#": "c#", "go": "go", "golang": "go", "rust": "rust", "rs": "rust", "ruby": "ruby",
    "rb": "ruby", "php": "php", "kotlin": "kotlin", "swift": "swift", "scala": "scala", "r": "r",
    "perl": "perl", "lua": "lua", "haskell": "haskell", "powershell": "powershell",
}  # fmt: skip
# A line of each language that rarely occurs in another one.
_SIGNS: Final = {
    "python": compile_guarded(
        r"^[ \t]*(?:def \w+\(.*\).*:|from [\w.]+ import |import \w+(?: as \w+)?\s*$|elif .*:\s*$"
        r"|for .+ in .+:\s*$|class \w+.*:\s*$|async def )",
        re.MULTILINE,
    ),
    "javascript": compile_guarded(
        r"^[ \t]*(?:export |async )*(?:function\b|const \w+ =|const [\[{]|let \w+ ?[=;])|=> ?[({\w]"
        r"|console\.log\(|\bdocument\.\w+",
        re.MULTILINE,
    ),
    "sql": compile_guarded(
        r"^[ \t]*(?:select\b[^;]*\bfrom\b|insert\s+into\b|update\s+\w+\s+set\b|delete\s+from\b"
        r"|with\s+\w+\s+as\s*\()",
        re.IGNORECASE | re.MULTILINE,
    ),
    "shell": compile_guarded(
        r"^[ \t]*(?:\$ )?(?:#!/bin/|sudo |(?:find|grep|awk|sed|sort|uniq|tar|rm|mv|cp|ls|cat|chmod"
        r"|chown|git|curl|xargs|cut|head|tail|du|df|ps|kill|crontab|docker|kubectl|rsync) \S"
        r"|for \w+ in .*(?:; ?|\n\s*)do\b|while (?:IFS=|read |\[).*; ?do|if \[)",
        re.MULTILINE,
    ),
}
# A line of a language that none of these checks reads.
_OTHER: Final = compile_guarded(
    r"^[ \t]*(?:(?:pub |unsafe )?fn \w+|func \w*\(?|(?:public|private|protected|static|void|int"
    r"|double|char|bool|string) [\w<>\[\]*]+ ?[\w(=;]|#include|package \w|using \w|val \w"
    r"|use \w+::|<\?php)"
    r"|\blet mut\b",
    re.MULTILINE,
)
_COUNTEREXAMPLE: Final = compile_guarded(
    r"\b(?:wrong|bad|incorrect|buggy|vulnerable|unsafe|insecure|don['’]t do|never do"
    r"|your (?:original |current )?(?:code|version|query|command|loop|function)|not like this"
    r"|original code|equivalent to|the problem)\b|\b(?:before|original|avoid)\W*$|❌",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a reply; `language` is empty if it is unknown.

    `label` is the language that the reply names, and `is_fenced` says whether it is in a fence.
    """

    language: str
    text: str
    label: str = ""
    is_fenced: bool = True


def code_blocks(reply: str, request: str = "") -> list[Block]:
    """Return the code blocks of a reply in order, at most MAX_BLOCKS.

    Without any fence, the whole reply or its inline code counts if it looks like code. Blocks that
    quote the request, and those that a word such as `wrong` or `before:` announces, are left out.
    """
    reply = reply[:MAX_TEXT]
    fences = list(_FENCE.finditer(reply))
    if not fences:
        language = language_of_code(reply)
        if language:
            return [Block(language, reply.strip("\n"), is_fenced=False)]
        return [
            Block(language, found["code"], is_fenced=False)
            for found in list(_INLINE.finditer(reply))[:MAX_BLOCKS]
            if (language := language_of_code(found["code"]))
        ]
    quoted = _plain_text(request)
    blocks: list[Block] = []
    for opening, closing in zip(fences[::2], fences[1::2], strict=False):
        code = reply[opening.end() : closing.start()].strip("\n")
        before = reply[max(0, opening.start() - 120) : opening.start()].strip().rpartition("\n")[2]
        first = code.strip().partition("\n")[0]
        is_bad = _COUNTEREXAMPLE.search(before) or (
            first.startswith(("#", "//", "--")) and _COUNTEREXAMPLE.search(first)
        )
        if not code.strip() or is_bad or _plain_text(code) in quoted:
            continue
        label = opening["lang"].casefold()
        language = LANGUAGES.get(label, "")
        if not label:
            language = language_of_code(code)
        blocks.append(Block(language, code, label))
    return blocks[:MAX_BLOCKS]


def has_program(reply: str) -> bool:
    """Return whether a fence of the reply is labelled with a programming language.

    An example is ```` ```py ````.
    """
    if "```" not in reply:
        return False
    fences = list(_FENCE.finditer(reply[:MAX_TEXT]))
    return any(opening["lang"].casefold() in LANGUAGES for opening in fences[::2])


def language_of_code(code: str) -> str:
    """Guess the language of code without a label: `python`, `javascript`, `sql` or `shell`.

    Empty if it is another, several fit, or a third of the lines is prose.
    """
    head = code[:4_000]
    if _OTHER.search(head):
        return ""
    found = [name for name, sign in _SIGNS.items() if sign.search(head)]
    lines = [line for line in head.splitlines() if line.strip()]
    if len(found) != 1 or not lines:
        return ""
    prose = sum(line.rstrip().endswith((".", "!", "?")) and " " in line.strip() for line in lines)
    return found[0] if 3 * prose < len(lines) else ""


def _plain_text(text: str) -> str:
    """Return the first MAX_TEXT characters of a text with single spaces."""
    return " ".join(text[:MAX_TEXT].split())
