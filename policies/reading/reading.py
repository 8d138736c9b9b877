"""Readers of a document's values that report each mistake in a sentence.

A `Node` is one place in a document. Its methods return the value asked for, or report a problem
and return a stand-in. So reading continues, and all problems of a file are reported together. No
stand-in is ever used, because a document with problems is refused as a whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from policies.errors import Problem
from policies.reading.strict_yaml import Document, nearest
from policies.reading.yaml_builder import Location, Value

Choice = TypeVar("Choice", bound=str)
Fallback = TypeVar("Fallback")


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a document; `is_present` is False for a key that the document leaves out.

    `problems` and `models` belong to the document and are shared by all of its places.
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
        """Return the node of a whole document, without problems so far."""
        return cls(document, [], [], document.value, called=called)

    def report(self, message: str) -> None:
        """Add a problem at this place."""
        self.problems.append(Problem(self.document.source, self.line, message))

    @property
    def line(self) -> int:
        """The line of this place in its document, from 1."""
        return self.document.line(self.location)

    def __str__(self) -> str:
        """Return the place in the usual notation: `rules[2].when.confidence`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.location)
        return "".join(steps).removeprefix(".") or self.called

    def __getitem__(self, key: str) -> Node:
        """Return the node of a key, which may be absent."""
        mapping = self.value if isinstance(self.value, dict) else {}
        return self._inner(mapping.get(key), key, is_present=key in mapping)

    def _inner(self, value: Value, step: str | int, *, is_present: bool = True) -> Node:
        location = (*self.location, step)
        return Node(self.document, self.problems, self.models, value, location, is_present)

    def check_keys(self, valid: Collection[str], required: Collection[str] = ()) -> None:
        """Report anything but a mapping with these keys.

        No value (`when:`) counts as an empty one.
        """
        all_keys = f"; valid keys: {', '.join(valid)}"
        mapping = {} if self.value is None else self.value
        if not isinstance(mapping, dict):
            self.report(f"{self} must be a mapping, not {abbreviate(mapping)}{all_keys}")
            return
        for key in mapping:
            if key not in valid:
                hint = suggestion(key, valid) or all_keys
                self[key].report(f"unknown key {key!r} in {self}{hint}")
        for key in required:
            if key not in mapping:
                self.report(f"missing key {key!r} in {self}")

    def items(self) -> list[Node]:
        """Return the nodes of a list's items; no value (`rules:`) counts as an empty list."""
        items = [] if self.value is None else self.value
        if not isinstance(items, list):
            self.report(f"{self} must be a list, not {abbreviate(items)}")
            return []
        return [self._inner(item, index) for index, item in enumerate(items)]

    def number(self, default: float, *, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a number from `low` to `high`, or `default` where it is absent or reported."""
        value = self.value
        if not self.is_present:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.report(f"{self} must be a number{_between(low, high)}, not {abbreviate(value)}")
            return default
        if not low <= value <= high:
            self.report(f"{self} must be a number{_between(low, high)}, not {value}")
            return default
        return float(value)

    def flag(self, default: bool) -> bool:
        """Return a boolean, or `default` where it is absent or reported."""
        if self.is_present and not isinstance(self.value, bool):
            self.report(f"{self} must be true or false, not {abbreviate(self.value)}")
            return default
        return self.value is True if self.is_present else default

    def text(self, default: str) -> str:
        """Return a text that is not blank, or `default` where it is absent or reported."""
        if not self.is_present:
            return default
        if not isinstance(self.value, str) or not self.value.strip():
            self.report(f"{self} must be text, not {abbreviate(self.value)}")
            return default
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return one text or a list of them; an empty list is reported."""
        if not isinstance(self.value, list):
            return (self.text(""),)
        if not self.value:
            self.report(f"{self} is empty, so it could never hold")
        return tuple(item.text("") for item in self.items())

    def model(self) -> str:
        """Return the name of a model to ask, and note it with its place in `models`."""
        name = self.text("")
        if name:
            message = f"{self} names {name!r}, a model that no route of the configuration serves"
            self.models.append((name, Problem(self.document.source, self.line, message)))
        return name

    def several_models(self) -> tuple[str, ...]:
        """Return one name of a model or a list of them, noted likewise.

        An empty list is reported.
        """
        if isinstance(self.value, list):
            return tuple(item.model() for item in self.items()) or self.texts()
        return (self.model(),)

    def choice(self, valid: Sequence[Choice], default: Fallback) -> Choice | Fallback:
        """Return the given word if it is valid, or `default` where it is absent or reported."""
        if not self.is_present:
            return default
        for word in valid:
            if self.value == word:
                return word
        hint = suggestion(self.value, valid) if isinstance(self.value, str) else ""
        self.report(f"{self} must be {either(valid)}, not {abbreviate(self.value)}{hint}")
        return default


def _between(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    return f" from {low:g}" + ("" if math.isinf(high) else f" to {high:g}")


def either(words: Collection[str]) -> str:
    """Return words joined for a sentence: `enforce or shadow`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def abbreviate(value: Value) -> str:
    """Describe a value in a sentence: `a mapping`, `a list`, or the value, cut at 40 letters."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}...")
    return json.dumps(value)


def read_words(node: Node, valid: Collection[str]) -> frozenset[str]:
    """Read a word or a list of words, and report each invalid one with the nearest valid one."""
    words = node.texts()
    for word in words:
        if word and word not in valid:
            hint = suggestion(word, valid)
            node.report(f"{node} must be {either(valid)}, not {abbreviate(word)}{hint}")
    return frozenset(words)


def suggestion(name: str, valid: Collection[str]) -> str:
    """Return the end of a sentence with the name that was probably meant, or ""."""
    meant = nearest(name, valid)
    return f"; did you mean {meant!r}?" if meant else ""
