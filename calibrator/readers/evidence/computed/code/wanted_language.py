"""The comparison of the code's language in a reply with the requested one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from calibrator.readers.evidence.computed.code.blocks import LANGUAGES, Block
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

_NAMES: Final = {
    "python": "Python", "javascript": "JavaScript", "sql": "SQL", "shell": "a shell",
    "java": "Java", "c": "C", "c++": "C++", "c#": "C#", "go": "Go", "rust": "Rust",
    "ruby": "Ruby", "php": "PHP", "kotlin": "Kotlin", "swift": "Swift", "scala": "Scala",
    "perl": "Perl", "lua": "Lua",
    "haskell": "Haskell", "powershell": "PowerShell",
}  # fmt: skip
# Names that are common words (C, Go, R) count only after a word that asks for a language.
_NAMED: Final = compile_guarded(
    r"(?<![\w.+#/-])(?P<n>python ?3?|javascript|typescript|js|sql|bash|c\+\+|c#|java|golang|rust"
    r"|ruby|php|kotlin|swift|scala|perl|haskell|powershell)(?![\w+#/]|\.\w)",
    re.IGNORECASE,
)
# Lines that only one language has.
_LINES: Final = {
    "python": compile_guarded(
        r"^(?:def \w+\(.*\).*:|from [\w.]+ import \w[\w, ]*|[ \t]*elif .*:)[ \t]*$", re.MULTILINE
    ),
    "javascript": compile_guarded(
        r"^[ \t]*(?:const|let) \w+ = .*;\s*$|^(?:async )?function \w+\(.*\) \{", re.MULTILINE
    ),
}
_TYPESCRIPT: Final = compile_guarded(r"\btypescript\b|\bin ts\b", re.IGNORECASE)
_PLAIN_SCRIPT: Final = compile_guarded(
    r"\bjavascript\b|\bjs\b|\bconvert|\bmigrat|\bfrom typescript", re.IGNORECASE
)
_TYPED: Final = re.compile(
    r"\w\??\s*:\s*(?:string|number|boolean|unknown|any|void|never|object|Array|Record|Promise|Map|Set"
    r"|Partial|ReturnType|[A-Z]\w*)\b|\binterface\s+\w|^\s*(?:export\s+)?type\s+\w+\s*[=<]"
    r"|\bas (?:const|\w+)\b|<[A-Z]\w*(?:\s+extends\b[^>\n]{0,80})?>|\benum\s+\w",
    re.MULTILINE,
)
_OTHER: Final = compile_guarded(
    r"\b(?:convert|port|translat\w+|rewrite|migrat\w+|from|call\w*|equivalent|versus|vs|compar\w+"
    r"|instead|html|css|react|vue|django|flask|node|both|any language|or)\b",
    re.IGNORECASE,
)


def language_bug(rules: str, request: str, blocks: Sequence[Block]) -> Finding | None:
    """Find code that is not in the one language that was named, or not in that of its label."""
    for block in blocks:
        known = LANGUAGES.get(block.label, "")
        own = next((name for name, sign in _LINES.items() if sign.search(block.text)), "")
        if known in _LINES and own and own != known and not _LINES[known].search(block.text):
            reason = f"the block is labelled {_NAMES[known]} and is {_NAMES[own]}"
            return Finding(False, -3.0, reason)
    untyped = _find_untyped(request, blocks)
    if untyped is not None:
        return untyped
    text = f"{rules}\n{request}"
    wanted = {LANGUAGES[_key(found["n"])] for found in _NAMED.finditer(text)}
    if len(wanted) != 1 or _OTHER.search(request):
        return None
    (language,) = wanted
    written = {block.language or LANGUAGES.get(block.label, "") for block in blocks}
    if "" in written or not written or language in written or language in ("sql", "shell"):
        return None
    if written & {"sql", "shell"}:
        return None  # a command that installs something, or a query
    other = min(written)
    return Finding(False, -3.0, f"the code is {_NAMES.get(other, other)}, not {_NAMES[language]}")


def _find_untyped(request: str, blocks: Sequence[Block]) -> Finding | None:
    """Find JavaScript without any type although TypeScript was requested."""
    if not _TYPESCRIPT.search(request) or _PLAIN_SCRIPT.search(request):
        return None
    scripts = [block for block in blocks if block.language == "javascript"]
    if not scripts or any(_TYPED.search(block.text) for block in scripts):
        return None
    if any(block.label in ("ts", "tsx", "typescript", "") for block in scripts):
        return None
    return Finding(False, -3.0, "the code is JavaScript without types, not TypeScript")


def _key(name: str) -> str:
    return name.casefold().replace(" ", "")
