"""A place in a document, where readers find the value and report what is wrong with it.

A reader that reports a problem returns a stand-in. So reading continues, and all problems of a
file are reported together. No stand-in is ever used, because a document with problems is refused
as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from policies.errors import Problem
from policies.reading.strict_yaml import Document, nearest
from policies.reading.yaml_builder import Location, Value


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a document, with its value; `is_present` is False for a key that is left out.

    `problems` and `models` belong to the document and are shared by all of its places: what was
    reported, and the models' names with the problem of a name that no route serves.
    """

    document: Document
    problems: list[Problem]
    models: list[tuple[str, Problem]]
    value: Value
    location: Location = ()
    is_present: bool = True
    called: str = "the policy"

    @classmethod
    def root(cls, document: Document, called: str = "the policy") -> Node:
        """Return the node of a whole document, without problems; `called` names it in sentences."""
        return cls(document, [], [], document.value, called=called)

    def without_problems(self) -> Node:
        """Return the same place with lists of its own, so that reports there have no effect."""
        return replace(self, problems=[], models=[])

    def problem(self, message: str) -> Problem:
        """Return a problem with the message, at this place's file and line, without adding it."""
        return Problem(self.document.source, self.line, message)

    def report(self, message: str) -> None:
        """Add a problem at this place to `problems`."""
        self.problems.append(self.problem(message))

    @property
    def line(self) -> int:
        """The line of this place in its document, from 1."""
        return self.document.line(self.location)

    def __str__(self) -> str:
        """Return the place in the usual notation, `rules[2].when.confidence`.

        The root is `called`.
        """
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.location)
        return "".join(steps).removeprefix(".") or self.called

    def __getitem__(self, key: str) -> Node:
        """Return the node of a key, `rules` of the root for example.

        Where it is absent, or this is no mapping, its value is None and `is_present` is False.
        """
        mapping = self.value if isinstance(self.value, dict) else {}
        return self._inner(mapping.get(key), key, is_present=key in mapping)

    def _inner(self, value: Value, step: str | int, *, is_present: bool = True) -> Node:
        """Return the node of a value one `step` (key or index) deeper, with the same problems."""
        location = (*self.location, step)
        return Node(self.document, self.problems, self.models, value, location, is_present)

    def items(self) -> list[Node]:
        """Return the nodes of a list's items; no value (`rules:`) counts as an empty list.

        Report any other value at this node, and return [].
        """
        items = [] if self.value is None else self.value
        if not isinstance(items, list):
            self.report(f"{self} must be a list, not {abbreviate(items)}")
            return []
        return [self._inner(item, index) for index, item in enumerate(items)]


def either(words: Collection[str]) -> str:
    """Return words joined for a sentence, such as `enforce, warn or shadow`.

    At least one is needed.
    """
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def abbreviate(value: Value) -> str:
    """Return a value in words: `a mapping`, `a list`, or itself as `'text'`, `1`, `true` or `null`.

    Text is cut at 40 characters.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}...")
    return json.dumps(value)


def suggestion(name: str, valid: Collection[str]) -> str:
    """Return `; did you mean 'NAME'?` with the valid name nearest to `name`, or "" without one."""
    match = nearest(name, valid)
    return f"; did you mean {match!r}?" if match else ""
