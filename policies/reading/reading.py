"""Reading a document's values with a sentence about everything that is wrong with them.

A `Node` is one place in a document. Its methods return the value asked for, or report a problem
and return a stand-in: reading goes on, all problems of a file come out together, and nobody sees
a stand-in because a document with problems is refused as a whole.
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
        """The whole of a document, with nothing wrong so far."""
        return cls(document, [], [], document.value, called=called)

    def report(self, message: str) -> None:
        """Add a problem at this place."""
        self.problems.append(Problem(self.document.source, self.line, message))

    @property
    def line(self) -> int:
        """The line of this place in its document, from 1."""
        return self.document.line(self.location)

    def __str__(self) -> str:
        """The place as people write it: `rules[2].when.confidence`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.location)
        return "".join(steps).removeprefix(".") or self.called

    def __getitem__(self, key: str) -> Node:
        """The value of a key, which need not be there."""
        mapping = self.value if isinstance(self.value, dict) else {}
        return self._inner(mapping.get(key), key, is_present=key in mapping)

    def _inner(self, value: Value, step: str | int, *, is_present: bool = True) -> Node:
        location = (*self.location, step)
        return Node(self.document, self.problems, self.models, value, location, is_present)

    def check_keys(self, valid: Collection[str], required: Collection[str] = ()) -> None:
        """Report whatever is not a mapping with these keys; nothing at all (`when:`) is empty."""
        all_keys = f"; valid keys: {', '.join(valid)}"
        mapping = {} if self.value is None else self.value
        if not isinstance(mapping, dict):
            self.report(f"{self} must be a mapping, not {shown(mapping)}{all_keys}")
            return
        for key in mapping:
            if key not in valid:
                hint = suggestion(key, valid) or all_keys
                self[key].report(f"unknown key {key!r} in {self}{hint}")
        for key in required:
            if key not in mapping:
                self.report(f"missing key {key!r} in {self}")

    def items(self) -> list[Node]:
        """The items of a list; nothing at all (`rules:`) is an empty one."""
        items = [] if self.value is None else self.value
        if not isinstance(items, list):
            self.report(f"{self} must be a list, not {shown(items)}")
            return []
        return [self._inner(item, index) for index, item in enumerate(items)]

    def number(self, default: float, *, low: float = -math.inf, high: float = math.inf) -> float:
        """A number from `low` to `high`, both included."""
        value = self.value
        if not self.is_present:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.report(f"{self} must be a number{_between(low, high)}, not {shown(value)}")
            return default
        if not low <= value <= high:
            self.report(f"{self} must be a number{_between(low, high)}, not {value}")
            return default
        return float(value)

    def flag(self, default: bool) -> bool:
        """True or false."""
        if self.is_present and not isinstance(self.value, bool):
            self.report(f"{self} must be true or false, not {shown(self.value)}")
            return default
        return self.value is True if self.is_present else default

    def text(self, default: str) -> str:
        """Text that is more than white space."""
        if not self.is_present:
            return default
        if not isinstance(self.value, str) or not self.value.strip():
            self.report(f"{self} must be text, not {shown(self.value)}")
            return default
        return self.value

    def texts(self) -> tuple[str, ...]:
        """One text or a list of them, at least one."""
        if not isinstance(self.value, list):
            return (self.text(""),)
        if not self.value:
            self.report(f"{self} is empty, so it could never hold")
        return tuple(item.text("") for item in self.items())

    def model(self) -> str:
        """The name of a model that is to be asked, which is noted with its place."""
        name = self.text("")
        if name:
            message = f"{self} names {name!r}, a model that no route of the configuration serves"
            self.models.append((name, Problem(self.document.source, self.line, message)))
        return name

    def several_models(self) -> tuple[str, ...]:
        """One such name or a list of them, at least one."""
        if isinstance(self.value, list):
            return tuple(item.model() for item in self.items()) or self.texts()
        return (self.model(),)

    def choice(self, valid: Sequence[Choice], default: Fallback) -> Choice | Fallback:
        """One of the given words."""
        if not self.is_present:
            return default
        for word in valid:
            if self.value == word:
                return word
        hint = suggestion(self.value, valid) if isinstance(self.value, str) else ""
        self.report(f"{self} must be {either(valid)}, not {shown(self.value)}{hint}")
        return default


def _between(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    return f" from {low:g}" + ("" if math.isinf(high) else f" to {high:g}")


def either(words: Collection[str]) -> str:
    """Join words: `enforce or shadow`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def shown(value: Value) -> str:
    """Show a value inside a sentence, in short."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}...")
    return json.dumps(value)


def read_words(node: Node, valid: Collection[str]) -> frozenset[str]:
    """Read a word or a list of words; report each that is not valid, with the nearest that is."""
    words = node.texts()
    for word in words:
        if word and word not in valid:
            hint = suggestion(word, valid)
            node.report(f"{node} must be {either(valid)}, not {shown(word)}{hint}")
    return frozenset(words)


def suggestion(name: str, valid: Collection[str]) -> str:
    """End a sentence with the name that was probably meant, or with nothing."""
    meant = nearest(name, valid)
    return f"; did you mean {meant!r}?" if meant else ""
