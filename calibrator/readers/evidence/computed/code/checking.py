"""The judgement of a reply's code by the checks of its language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.code.blocks import Block, code_blocks
from calibrator.readers.evidence.computed.code.compiled import go_bugs, null_bugs
from calibrator.readers.evidence.computed.code.javascript import javascript_bugs
from calibrator.readers.evidence.computed.code.python import python_bugs
from calibrator.readers.evidence.computed.code.queries import query_bugs
from calibrator.readers.evidence.computed.code.requirements import (
    port_bugs,
    regex_bugs,
    unmet_requirements,
)
from calibrator.readers.evidence.computed.code.schedules import verify_schedule
from calibrator.readers.evidence.computed.code.shell import shell_bugs
from calibrator.readers.evidence.computed.code.wanted_language import language_bug
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


def verify_code(exchange: Exchange) -> Verdict | None:
    """Judge the code of a reply, or the output of given code that it states.

    None unless the code has a bug that is certain, or the right reply can be computed.
    """
    output = verify_output(exchange) or verify_schedule(exchange)
    if output is not None:
        return output
    bugs = _bugs(*_texts(exchange))
    certain = next((each for each in bugs if each.is_right is False), None)
    return None if certain is None else Verdict(False, certain.reason, "code")


def suspect_code(exchange: Exchange) -> Finding | None:
    """Return the strongest finding without proof against the code of a reply, or None."""
    bugs = _bugs(*_texts(exchange))
    return min(
        (each for each in bugs if each.is_right is None), key=lambda each: each.shift, default=None
    )


def _texts(exchange: Exchange) -> tuple[str, str, str, str]:
    """Return the rules, the request, the reply and the user's earlier messages."""
    turns = exchange.conversation.earlier[-8:]
    earlier = "\n".join(turn.text for turn in turns if turn.role == "user")
    return exchange.conversation.rules, exchange.request, exchange.reply, earlier


@lru_cache(maxsize=32)
def _bugs(rules: str, request: str, reply: str, earlier: str = "") -> tuple[Finding, ...]:
    """Return all findings against the code of a reply."""
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
    return "\n\n".join(block.text for block in blocks if block.language == language)
