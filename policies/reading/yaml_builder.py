"""A builder of plain values from PyYAML's events, with the line of each and every mistake.

Events, unlike PyYAML's nodes, come one by one without recursion. So a document that is nested too
deeply is refused before anything recurses, and no constructor of PyYAML ever sees it.

Scalars are read by YAML 1.2's core schema for decimal numbers, booleans and null. YAML 1.1, which
PyYAML follows, reads `no` as false, `012` as ten and `12:30` as 750: here they are the text `no`,
twelve and the text `12:30`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import yaml

from policies.errors import InvalidDocumentError, Problem

Scalar: TypeAlias = bool | int | float | str | None

Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"

Location: TypeAlias = tuple[str | int, ...]
"""The path from the root to a value: keys of mappings and indexes of lists."""

MAX_DEPTH: Final = 40
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
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


class Builder:
    """A builder of the value of one document. Without `env`, `${NAME}` stays text.

    `build` raises InvalidDocumentError only where it cannot continue. All other problems are
    collected in `problems`; the value is meaningless once there is one.
    """

    def __init__(self, text: str, source: str, env: Mapping[str, str] | None) -> None:
        """Prepare to parse `text`; `source` names it in problems, `env` holds variables."""
        self.problems: list[Problem] = []
        self.lines: dict[Location, int] = {}
        self.substituted: dict[str, str] = {}  # environment variables and their values
        self._source = source
        self._env = env
        self._events = self._parse(text)

    def build(self) -> Value:
        """Return the document's value, None for an empty one; call it once.

        A second document is added to `problems`. Raises InvalidDocumentError for a syntax error and
        nesting that is too deep.
        """
        value: Value = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._report(event, "a second document starts here; a file holds one")
                    break
                value = self._value(next(self._events), ())
        return value

    def _parse(self, text: str) -> Iterator[yaml.Event]:
        """Yield PyYAML's events. Raises InvalidDocumentError instead of PyYAML's errors."""
        try:
            loader = yaml.SafeLoader(text)
            while loader.check_event():
                yield loader.get_event()  # type: ignore[no-untyped-call]  # untyped in the stubs
        except yaml.YAMLError as error:
            problem = _syntax_problem(error, text, self._source)
            raise InvalidDocumentError([*self.problems, problem]) from error
        # An escape such as "\UFFFFFFFF" or an endless %YAML version raises no YAMLError.
        except (ValueError, OverflowError) as error:
            message = "not valid YAML: a number is out of range"
            problem = Problem(self._source, loader.line + 1, message)
            raise InvalidDocumentError([*self.problems, problem]) from error

    def _report(self, event: yaml.Event, message: str) -> None:
        """Add a problem with the line of an event to `problems`."""
        self.problems.append(Problem(self._source, _line(event), message))

    def _value(self, event: yaml.Event, location: Location) -> Value:
        """Return the value that begins with `event`, read to its end, and note its line.

        `location` is its path, such as `("rules", 0)`. An alias is reported and gives None. Raises
        InvalidDocumentError for a list or mapping at `MAX_DEPTH` levels.
        """
        self.lines.setdefault(location, _line(event))
        self._refuse_extras(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if len(location) >= MAX_DEPTH:
            self._report(event, f"nested more than {MAX_DEPTH} levels deep")
            raise InvalidDocumentError(self.problems)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(location)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(location)
        return None  # an alias, refused above

    def _list(self, location: Location) -> list[Value]:
        """Return the items of a list whose start was read, up to and including its end."""
        items: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*location, len(items))))
        return items

    def _mapping(self, location: Location) -> dict[str, Value]:
        """Return the entries of a mapping whose start was read, up to and including its end.

        A repeated key is reported; the last of its values counts.
        """
        mapping: dict[str, Value] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            if key in mapping:
                first = self.lines[*location, key]
                self._report(event, f"duplicate key {key!r}, first on line {first}")
            self.lines.setdefault((*location, key), _line(event))
            mapping[key] = self._value(next(self._events), (*location, key))
        return mapping

    def _key(self, event: yaml.Event) -> str:
        """Return the text of a mapping's key; report a merge key (`<<`) and what is not text.

        That is an unquoted number, `true` or `null`. Raises InvalidDocumentError for a list, a
        mapping or an alias.
        """
        self._refuse_extras(event)
        if not isinstance(event, yaml.ScalarEvent):
            if not isinstance(event, yaml.AliasEvent):
                self._report(event, "a key must be text")
            raise InvalidDocumentError(self.problems)
        key = event.value
        self._check_unicode(event, key)
        if key == "<<" and _is_plain(event):
            self._report(event, "merge keys are not allowed")
        elif _is_plain(event) and not isinstance(self._resolve(event, key), str):
            self._report(event, f"a key must be text; put quotes around {key[:30]}")
        return key

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        """Return a scalar's value: quoted text as it is, other text as YAML's scalar of that form.

        Unquoted text may be a number, a boolean, null or text. With an environment, `${NAME}` is
        substituted first; the text then counts as unquoted only where it was a single substitution.
        Used variables are added to `substituted`, mistakes to `problems`.
        """
        text = event.value
        is_plain = _is_plain(event)
        if self._env is not None and "${" in text:
            is_plain = is_plain and is_substitution(text)
            self.substituted |= variables_in(text, self._env)
            text, wrong = substitute(text, self._env)
            for message in wrong:
                self._report(event, message)
        self._check_unicode(event, text)
        return self._resolve(event, text) if is_plain else text

    def _check_unicode(self, event: yaml.Event, text: str) -> None:
        """Report surrogates, from an escape or the environment, as they cannot be encoded."""
        if _SURROGATE.search(text):
            self._report(event, "surrogates are not text; write the character itself")

    def _resolve(self, event: yaml.Event, text: str) -> Scalar:
        """Return the value of an unquoted text; report a number too large, and return None."""
        try:
            return resolve(text)
        except ValueError as error:
            self._report(event, str(error))
            return None

    def _refuse_extras(self, event: yaml.Event) -> None:
        """Report an alias (`*a`), or the anchor (`&a`) and the tag (`!t`) of an event."""
        if isinstance(event, yaml.AliasEvent):
            message = f"alias *{event.anchor} is not allowed; text that begins with * needs quotes"
            self._report(event, message)
            return
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            message = f"anchor &{event.anchor} is not allowed; text that begins with & needs quotes"
            self._report(event, message)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag:
            self._report(event, "tags are not allowed; text that begins with ! needs quotes")


def _is_plain(event: yaml.ScalarEvent) -> bool:
    """Return whether a scalar has no quotes and is no block."""
    return event.style is None


def _line(event: yaml.Event) -> int:
    """Return the line, from 1, where an event starts; 1 where it has no mark."""
    return event.start_mark.line + 1 if event.start_mark else 1


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    """Return a problem, with its line, for an error of PyYAML in `text`.

    It hints at quotes that are missing around `*` or `${NAME}`. The line is 0 where it is unknown.
    """
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(source, line, f"the character U+{error.character:04X} is not allowed")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(source, 0, f"not valid YAML: {error}")
    mark = error.problem_mark or error.context_mark
    # PyYAML marks the end of its input with a NUL.
    problem = str(error.problem).replace(r"'\x00'", "the end of the file")
    message = f"not valid YAML: {problem}"
    if error.context:
        message += f", {error.context}"
    line = mark.line if mark else 0
    if error.context == "while scanning an alias":
        message += "; text that begins with * needs quotes"
    elif "${" in "".join(text.splitlines()[line : line + 1]):
        message += '; inside braces or brackets "${NAME}" needs quotes'
    return Problem(source, line + 1, message)


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
