"""The meaning of a single YAML scalar: numbers, booleans and `${NAME}` substitutions.

The rules are those of YAML 1.2's core schema for decimal numbers, booleans and null. YAML 1.1,
which PyYAML follows, reads `no` as false, `012` as ten and `12:30` as 750: here they are the
text `no`, twelve and the text `12:30`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Scalar: TypeAlias = bool | int | float | str | None

_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")

# `$${` is a literal `${`; `broken` matches malformed and nested substitutions.
_SUBSTITUTION: Final = re.compile(
    r"(?P<escape>\$\$\{)"
    r"|(?P<whole>\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\})"
    r"|(?P<broken>\$\{)"
)


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar: None, a boolean, an int, a float, or the text itself.

    Raises ValueError with a sentence for an integer of more than 30 characters or a float that is
    too large.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        # int() refuses more than 4300 digits, and no sensible number is longer than this.
        if len(text) > 30:
            raise ValueError("the number has too many digits; text needs quotes")
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError("the number is too large")
        return number
    return text


def is_substitution(text: str) -> bool:
    """Return whether the text is one `${NAME}` or `${NAME:-default}` and nothing else."""
    match = _SUBSTITUTION.fullmatch(text)
    return match is not None and match["whole"] is not None


def variables_in(text: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a text names as `${NAME}`, with their values in `env`.

    Unset and empty ones are left out.
    """
    names = (match["name"] for match in _SUBSTITUTION.finditer(text) if match["name"])
    return {name: env[name] for name in names if env.get(name)}


def substitute(text: str, env: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace every `${NAME}` and `${NAME:-default}` by its value; return (text, problems).

    The default is used for a variable that is unset or empty, and `$${` becomes `${`. Each problem
    is a sentence: about an unset variable without a default, or about a malformed `${`; both are
    replaced by nothing.
    """
    problems: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        """Return the text for one match; add a sentence to `problems` for a bad one."""
        if match["escape"]:
            return "${"
        if match["broken"]:
            problems.append("'${' must be ${NAME} or ${NAME:-default}; $${ is a literal '${'")
            return ""
        name, default = match["name"], match["default"]
        if default is not None:
            return env.get(name) or default
        if name not in env:
            problems.append(
                f"environment variable {name} is not set; ${{{name}:-...}} gives it a default"
            )
        return env.get(name, "")

    return _SUBSTITUTION.sub(replacement, text), problems
