"""The judgement of a reply's code: its language and the checks of that language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.code.blocks import LANGUAGES, Block, code_blocks
from calibrator.readers.evidence.computed.code.javascript_java_go import (
    go_bugs,
    javascript_bugs,
    null_bugs,
)
from calibrator.readers.evidence.computed.code.python import python_bugs
from calibrator.readers.evidence.computed.code.queries import query_bugs
from calibrator.readers.evidence.computed.code.requirements import (
    port_bugs,
    regex_bugs,
    unmet_requirements,
)
from calibrator.readers.evidence.computed.code.shell import shell_bugs, verify_schedule
from calibrator.readers.evidence.computed.programs.outputs import verify_output
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

_WANTS_FAULTS: Final = compile_guarded(
    r"\b(?:example of|demonstrat\w+|introduce|with (?:a|some) bugs?|buggy|vulnerab\w+|anti-?pattern"
    r"|bad (?:code|practice|example)|pitfalls?|obfuscat\w+|golf|exploit|quiz|pseudo-?code)\b",
    re.IGNORECASE,
)
_CHECKS: Final[dict[str, Callable[[str, str, str], Iterable[Finding]]]] = {
    "python": python_bugs,
    "javascript": lambda code, request, reply: javascript_bugs(code, request),
    "sql": lambda code, request, reply: query_bugs(code, request),
    "java": lambda code, request, reply: null_bugs(code, request),
    "go": lambda code, request, reply: go_bugs(code),
    "c#": lambda code, request, reply: null_bugs(code, request),
    "shell": lambda code, request, reply: shell_bugs(code, request),
}

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


def verify_code(exchange: Exchange) -> Verdict | None:
    """Judge stated output, a crontab line, or the code of a reply.

    Code gets a wrong verdict for a certain bug and never a right one. None if nothing can be
    computed or found.
    """
    output = verify_output(exchange) or verify_schedule(exchange)
    if output is not None:
        return output
    bugs = _bugs(*_texts(exchange))
    certain = next((each for each in bugs if each.is_right is False), None)
    return None if certain is None else Verdict(False, certain.reason, "code")


def suspect_code(exchange: Exchange) -> Finding | None:
    """Return the strongest uncertain finding against the code of a reply, or None."""
    bugs = _bugs(*_texts(exchange))
    return min(
        (each for each in bugs if each.is_right is None), key=lambda each: each.shift, default=None
    )


def _texts(exchange: Exchange) -> tuple[str, str, str, str]:
    """Return (rules, request, reply, the user's messages among the last eight turns, joined)."""
    turns = exchange.conversation.earlier[-8:]
    earlier = "\n".join(turn.text for turn in turns if turn.role == "user")
    return exchange.conversation.rules, exchange.request, exchange.reply, earlier


@lru_cache(maxsize=32)
def _bugs(rules: str, request: str, reply: str, earlier: str = "") -> tuple[Finding, ...]:
    """Return all findings against the code of a reply, by its language and by the request.

    Empty if the request wants faulty code, as in `an example of a buggy loop`. `earlier` are the
    user's earlier messages. The results of 32 calls are kept.
    """
    request, reply = request[:MAX_TEXT], reply[:MAX_TEXT]
    blocks = code_blocks(reply, request)
    found = [*regex_bugs(reply, request), *port_bugs(reply, request)]
    if blocks:
        in_other = language_bug(rules[:MAX_TEXT], request, blocks)
        found += [] if in_other is None else [in_other]
    for language, check in _CHECKS.items():
        code = _join_blocks(blocks, language)
        if code:
            found += [
                *check(code, request, reply),
                *unmet_requirements(code, language, request, earlier),
            ]
    return tuple(found) if found and not _WANTS_FAULTS.search(request) else ()


def _join_blocks(blocks: Iterable[Block], language: str) -> str:
    """Return the code of all blocks in this language as one text; empty without any."""
    return "\n\n".join(block.text for block in blocks if block.language == language)


def language_bug(rules: str, request: str, blocks: Sequence[Block]) -> Finding | None:
    """Find code in another language than the one that the rules or the request name, or None.

    Also found are a block whose label and code differ, and JavaScript for a request of TypeScript.
    Nothing is found if several languages are named or the request is about a conversion.
    """
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
    """Find JavaScript without any type annotation although TypeScript was requested.

    None without.
    """
    if not _TYPESCRIPT.search(request) or _PLAIN_SCRIPT.search(request):
        return None
    scripts = [block for block in blocks if block.language == "javascript"]
    if not scripts or any(_TYPED.search(block.text) for block in scripts):
        return None
    if any(block.label in ("ts", "tsx", "typescript", "") for block in scripts):
        return None
    return Finding(False, -3.0, "the code is JavaScript without types, not TypeScript")


def _key(name: str) -> str:
    """Return a language's name as a key of LANGUAGES: `python3` for `Python 3`."""
    return name.casefold().replace(" ", "")
