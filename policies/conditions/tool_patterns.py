"""The tool calls that a rule is about, given by their names and their arguments.

    tools:
      - send_email                                # this tool
      - "db.*"                                    # these tools
      - name: "payments.*"                        # these, with such arguments; all have to match
        arguments:
          amount: {above: 100}                    # also at_least, below, at_most
          currency: [EUR, USD]                    # globs of which one matches
          recipient.email: {not: "*@ours.com"}    # inside an object, or in each of a list
          note: {present: true}
          "*": "*DROP TABLE*"                     # any value, however deep
          sql: {words: [delete, drop table]}      # words in any case, in this order
          command: {commands: [ls, git status]}   # a shell's, all of which begin so
          file_path: {paths: outside}             # of the project; or globs
      - words: [delete, remove]                   # deleteRow, db.remove_user: words of the name
      - {words: [order, book], without: [get, list]}      # but not get_order
      - {name: "*", marked: any, risk: high}      # see `policies.conditions.call_notes`

A key of `arguments` may be a glob (`"*amount*"`). Of a list of mappings, one has to match.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from policies.conditions.call_notes import MARKED, RISK, MarkCondition, Risk
from policies.conditions.commands import CommandsTest
from policies.conditions.facts import UNREADABLE, ToolCall, decoded_json
from policies.conditions.globs import Globs, glob_test, is_literal
from policies.conditions.paths import PathsTest
from policies.conditions.tool_names import fold_name
from policies.conditions.tool_words import MAX_NAME, NameWords, Phrases, words_in
from policies.reading.reading import Node, abbreviate
from policies.reading.shapes import (
    FLAG,
    TEXT,
    TEXTS,
    Shape,
    by_name,
    mapping,
    number,
    one_or_list,
    or_mapping,
    several,
)

_COMPARISONS: Final = ("above", "at_least", "below", "at_most")
EVERYTHING: Final = Globs(("*",))
GLOBS: Final = Shape(lambda node: Globs(TEXTS.read(node)), TEXTS.schema)
"""One glob or several."""
_TRUE: Final = frozenset({"true", "yes", "on", "y", "t", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "n", "f", "0"})  # as in pydantic


@dataclass(frozen=True, slots=True)
class TextTest:
    """A test that a text, or any other value as JSON (`5`, `null`), matches one of the globs."""

    globs: Globs
    is_not: bool = False

    def holds(self, value: Any) -> bool | None:
        """Return whether `value` matches a glob, or with `is_not` whether it matches none.

        A glob that is a boolean's word (`yes`) also matches true; another word (`on`) gives None.
        """
        text = value if isinstance(value, str) else json.dumps(value)
        is_matched = self.globs.match(text)
        if not is_matched and (words := _same_boolean(text)):
            # `yes` in a policy is a text, which also means true
            is_named = any(each.lower() in words for each in self.globs.patterns)
            if is_named and not isinstance(value, bool):
                return None  # the tool may take another word for the same
            is_matched = is_named
        return is_matched is not self.is_not


def _same_boolean(text: str) -> frozenset[str]:
    """Return all words for the same boolean as `text` (`yes`, `1` .. for `True`); else empty."""
    word = text.strip().lower()
    return next((words for words in (_TRUE, _FALSE) if word in words), frozenset())


@dataclass(frozen=True, slots=True)
class BooleanTest:
    """A test that a value is the boolean `wanted`."""

    wanted: bool

    def holds(self, value: Any) -> bool | None:
        """Return True for `wanted`, False for null, the other or a word for it, else None."""
        if value is None or isinstance(value, bool):
            return value is self.wanted
        text = value.strip().lower() if isinstance(value, str) else json.dumps(value)
        return False if text in (_FALSE if self.wanted else _TRUE) else None


@dataclass(frozen=True, slots=True)
class NumberTest:
    """A test that a number is between `low` and `high`."""

    low: float = -math.inf
    high: float = math.inf
    has_low: bool = True  # whether `low` itself is included
    has_high: bool = True

    def holds(self, value: Any) -> bool | None:
        """Return whether a number or its text (`"2.5"`) is in range; None for all else and NaN."""
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or math.isnan(number):
            return None
        above = number >= self.low if self.has_low else number > self.low
        below = number <= self.high if self.has_high else number < self.high
        return above and below


@dataclass(frozen=True, slots=True)
class WordsTest:
    """A test that the texts inside a value, joined by spaces, contain one of the phrases."""

    phrases: Phrases

    def holds(self, value: Any) -> bool | None:
        """Return whether a phrase is in the text, or in a list's texts joined; never None."""
        text = " ".join(each for each in _leaves(value) if isinstance(each, str))
        return self.phrases.match(text)


ValueTest: TypeAlias = TextTest | NumberTest | BooleanTest


@dataclass(frozen=True, slots=True)
class ArgumentPattern:
    """A condition on the values at `path`, such as `("to", "email")`; () means everywhere."""

    path: tuple[str, ...]
    tests: tuple[ValueTest, ...] = ()
    is_present: bool | None = None
    words: WordsTest | None = None
    commands: CommandsTest | None = None
    paths: PathsTest | None = None

    def holds(self, arguments: Any, *, if_unknown: bool, project: str | None = None) -> bool:
        """Return whether the decoded `arguments` of a call meet all tests; `project` is a folder.

        One value of several is enough, but `commands` must hold for each. `if_unknown` is the
        result of each test that cannot tell (None), and of the whole where a text on the path is
        broken JSON.
        """
        values = _at(arguments, self.path) if arguments or not self.path else []
        if UNREADABLE in values:
            return if_unknown
        if (self.commands or self.paths) and not self._are_shells(values, if_unknown, project):
            return False
        if self.is_present is not None and self.is_present is not bool(values):
            return False
        if self.words is not None and not any(map(self.words.holds, values)):
            return False
        return not self.tests or any(
            self._all_hold(leaf, if_unknown) for value in values for leaf in _leaves(value)
        )

    def _are_shells(self, texts: list[Any], if_unknown: bool, project: str | None) -> bool:
        """Return whether all of `texts`, at least one, pass `commands`, and one of them `paths`."""
        if (commands := self.commands) is not None:
            results = [commands.holds(value) for value in texts]
            if not results or not all(if_unknown if each is None else each for each in results):
                return False
        if (paths := self.paths) is None:
            return True
        path_results = [paths.holds(value, project) for value in texts]
        return any(if_unknown if each is None else each for each in path_results)

    def _all_hold(self, leaf: Any, if_unknown: bool) -> bool:
        """Return whether all `tests` hold for one value; None from a test is `if_unknown`."""
        results = [test.holds(leaf) for test in self.tests]
        return all(if_unknown if result is None else result for result in results)


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """Calls of such tools. `if_unknown` is the result where a call cannot be read."""

    names: Globs
    arguments: tuple[ArgumentPattern, ...] = ()
    if_unknown: bool = True
    words: NameWords | None = None
    marked: MarkCondition | None = None
    risk: Risk | None = None
    _remembered: Any = field(init=False, repr=False, compare=False)
    """The test of whether a call of a name may match, cached; `__wrapped__` is not cached."""
    _unknown: Any = field(init=False, repr=False, compare=False)  # for a tool not offered
    _loose_names: Globs = field(init=False, repr=False, compare=False)  # in lower case

    def __post_init__(self) -> None:
        """Set the cached tests of names and the globs that match them generously."""
        names, words = self.names.match, self.words

        def has_name(name: str) -> bool:
            return names(name) and (words is None or words.match(name))

        def may_be(name: str) -> bool:
            return self.matched_name(ToolCall(name)) is not None

        object.__setattr__(self, "_remembered", lru_cache(maxsize=1_024)(has_name))
        object.__setattr__(self, "_unknown", lru_cache(maxsize=1_024)(may_be))
        loose = (fold_name(n) if is_literal(n) else n.casefold() for n in self.names.patterns)
        object.__setattr__(self, "_loose_names", Globs(tuple(filter(None, loose))))

    def has_name(self, name: str) -> bool:
        """Return whether this very name matches the globs and words of this pattern."""
        cached = self._remembered if len(name) <= MAX_NAME else self._remembered.__wrapped__
        return bool(cached(name))

    def matched_name(self, call: ToolCall) -> str | None:
        """Return the name, of all under which a client may look up the call, that matches, or None.

        Arguments do not count. With `if_unknown` one name is enough, and a tool that is not offered
        also matches without regard to case and separators. Otherwise all names must match exactly.
        """
        others = call.other_names()
        if not self.if_unknown:
            return call.name if all(map(self.has_name, (call.name, *others))) else None
        for name in (call.name, *others):
            if self.has_name(name):
                return name
        is_exact = call.readings == ()  # every client finds an offered tool of another name
        return None if is_exact else self._loosely_matched((call.name, *others))

    def _loosely_matched(self, names: tuple[str, ...]) -> str | None:
        """Return the first name that matches without case or separators; None if no words fit."""
        if self.words is not None and not any(map(self.words.match, names)):
            return None
        return next(filter(self._matches_loosely, names), None)

    def _matches_loosely(self, name: str) -> bool:
        """Return whether `name` matches a glob without case, or without case and separators."""
        match = self._loose_names.match
        return match(fold_name(name)) or match(name.casefold())

    def may_have_name(self, name: str) -> bool:
        """Return whether this name may match, if `if_unknown` also without case and separators."""
        return self.has_name(name) or (self.if_unknown and self._matches_loosely(name))

    def _may_be_nameless(self, call: ToolCall) -> bool:
        """Return whether a call with a blank name may match, given its marks and risk.

        It may with `if_unknown` and arguments of its own, or where the pattern has none and its
        names match.
        """
        if not self.has_notes(call):
            return False
        is_empty = call.arguments.strip() in ("", "{}")
        return (self.if_unknown and not is_empty) or (
            not self.arguments and self.matched_name(call) is not None
        )

    def match(self, call: ToolCall) -> bool:
        """Return whether name, marks, risk and arguments fit; unreadable ones give `if_unknown`."""
        name, readings = call.name, call.readings
        if not name or name.isspace():
            return self._may_be_nameless(call)
        if readings:
            if self.matched_name(call) is None:
                return False
        else:  # `has_name` inlined, as a hundred patterns may be tried on one call
            cached = self._unknown if readings is None else self._remembered
            if not (cached if len(name) <= MAX_NAME else cached.__wrapped__)(name):
                return False
        if not self.has_notes(call):
            return False
        if not self.arguments:
            return True
        values = call.values()
        if values is UNREADABLE:
            return self.if_unknown
        unknown, project = self.if_unknown, call.project
        return all(
            each.holds(values, if_unknown=unknown, project=project) for each in self.arguments
        )

    @property
    def needs_notes(self) -> bool:
        """Whether this looks at the marks or the risk of a call."""
        return self.marked is not None or self.risk is not None

    def has_notes(self, call: ToolCall) -> bool:
        """Return whether a call has the marks and the risk that the pattern asks for."""
        if self.marked is not None and not self.marked.match(call):
            return False
        return self.risk is None or self.risk.match(call)

    def for_delivery(self) -> ToolPattern:
        """Return a copy for a rule that delivers the reply, with `if_unknown` False everywhere."""
        marked = self.marked and replace(self.marked, if_unknown=False)
        risk = self.risk and replace(self.risk, if_unknown=False)
        return replace(self, if_unknown=False, marked=marked, risk=risk)

    def covers(self, other: ToolPattern) -> bool:
        """Return whether this surely matches each call that `other` does; False if uncertain."""
        is_as_wide = self.arguments == other.arguments and self.if_unknown >= other.if_unknown
        covers_words = self.words is None or self.words.covers(other.words)
        covers_name = self.names.covers(other.names) and covers_words
        covers_marks = self.marked is None or self.marked.covers(other.marked)
        covers_notes = covers_marks and (self.risk is None or self.risk.covers(other.risk))
        return covers_name and covers_notes and (not self.arguments or is_as_wide)


def _patterns(node: Node) -> tuple[ToolPattern, ...]:
    """Read a list of names and mappings; all names form the first pattern. Report an empty list."""
    if node.value == []:
        node.report(f"{node} is empty, so it could never hold")
    items = node.items()
    plain = tuple(TEXT.read(item) for item in items if not isinstance(item.value, dict))
    patterns = [ToolPattern(Globs(plain))] if plain else []
    for item in items:
        if isinstance(item.value, dict):
            patterns += _PATTERN.read(item)
    return tuple(patterns)


def _pattern(
    node: Node,
    *,
    name: Globs = EVERYTHING,
    words: frozenset[str] = frozenset(),
    without: frozenset[str] = frozenset(),
    arguments: tuple[tuple[ArgumentPattern, ...], ...] = ((),),
    **notes: Any,
) -> list[ToolPattern]:
    """Return a pattern for each alternative in `arguments`, equal but for that; by default one.

    Report `without` where `words` is missing or holds the same word. `notes` are `marked`, `risk`.
    """
    narrowed = node["without"]
    if without and not words:
        narrowed.report(f"{narrowed} stands beside words, which it narrows")
    if both := words & without:
        narrowed.report(f"{narrowed} takes away {min(both)!r}, which words asks for")
    name_words = NameWords(words, without) if words else None
    return [ToolPattern(name, each, words=name_words, **notes) for each in arguments]


def _single_words(node: Node) -> frozenset[str]:
    """Read a text or a list as a set; report each that is not one lower-case word (`deleteRow`)."""
    words = TEXTS.read(node)
    for word in filter(None, words):
        if words_in(word) != (word,):
            node.report(f"{node} has single words in lower case, not {abbreviate(word)}")
    return frozenset(words)


def _arguments(node: Node) -> tuple[ArgumentPattern, ...]:
    return tuple(_ARGUMENTS.read(node).values())


def _path(node: Node) -> tuple[str, ...]:
    """Return the keys of an argument's name in a policy: `a.b` is `("a", "b")`, `*` is ()."""
    name = str(node.location[-1])
    return () if name == "*" else tuple(name.split("."))


def _value(node: Node) -> ArgumentPattern:
    """Read a plain value (`EUR`, a list of texts, 5, true, null) as a pattern that wants it."""
    path, value = _path(node), node.value
    if isinstance(value, bool):
        return ArgumentPattern(path, (BooleanTest(value),))
    if isinstance(value, int | float):
        return ArgumentPattern(path, (NumberTest(value, value),))
    texts = ("null",) if value is None else TEXTS.read(node)
    return ArgumentPattern(path, (TextTest(Globs(texts)),))


def _tests(node: Node, **values: Any) -> ArgumentPattern:
    """Return the pattern of tests (`above=9.0`); report `present=False` beside another test."""
    if values.get("present") is False and len(values) > 1:
        node["present"].report(f"{node['present']} stands alone: what is not there has no value")
    tests: list[ValueTest] = []
    if not values.keys().isdisjoint(_COMPARISONS):
        tests.append(_comparison(node, values))
    if "not" in values:
        tests.append(TextTest(Globs(values["not"]), is_not=True))
    options = {name: values[name] for name in ("words", "commands", "paths") if name in values}
    return ArgumentPattern(_path(node), tuple(tests), values.get("present"), **options)


def _paths(node: Node) -> PathsTest:
    return PathsTest(is_outside=True) if node.value == "outside" else PathsTest(TEXTS.read(node))


def _phrases(node: Node) -> WordsTest:
    """Read one phrase or a list; report each that could never be found, such as `a; b`."""
    phrases = TEXTS.read(node)
    for phrase in filter(None, phrases):
        if not Phrases((phrase,)).match(phrase):
            node.report(
                f"{node} could never find {abbreviate(phrase)}: words of one command, or options"
            )
    return WordsTest(Phrases(phrases))


def _comparison(node: Node, bounds: Mapping[str, float]) -> NumberTest:
    """Return the range within `bounds`; report an empty range and two bounds of one side."""
    for one, other in (("above", "at_least"), ("below", "at_most")):
        if one in bounds and other in bounds:
            node[other].report(f"{node[other]} stands beside {one}; one of them is enough")
    test = NumberTest(
        max(bounds.get("above", -math.inf), bounds.get("at_least", -math.inf)),
        min(bounds.get("below", math.inf), bounds.get("at_most", math.inf)),
        has_low="above" not in bounds,
        has_high="below" not in bounds,
    )
    if test.low > test.high or (test.low == test.high and not (test.has_low and test.has_high)):
        node.report(f"{node} can never hold: no number is that")
    return test


_TESTS: Final[Mapping[str, Shape[Any]]] = {
    **dict.fromkeys(_COMPARISONS, number()),
    "not": TEXTS,
    "present": FLAG,
    "words": Shape(_phrases, TEXTS.schema),
    "commands": Shape(lambda node: CommandsTest(TEXTS.read(node)), TEXTS.schema),
    "paths": Shape(_paths, TEXTS.schema),
}
_ARGUMENTS: Final = by_name(
    or_mapping(
        Shape(_value, {"anyOf": [{"type": ["number", "boolean", "null"]}, TEXTS.schema]}),
        mapping(_tests, _TESTS, needs=tuple(_TESTS)),
    ),
    least=1,
)
_SINGLE_WORDS: Final = Shape(_single_words, TEXTS.schema)
_PATTERN: Final = mapping(
    _pattern,
    {
        "name": GLOBS,
        "words": _SINGLE_WORDS,
        "without": _SINGLE_WORDS,
        "arguments": Shape(lambda node: several(node, _arguments), one_or_list(_ARGUMENTS.schema)),
        "marked": MARKED,
        "risk": RISK,
    },
    needs=("name", "words", "marked", "risk"),
)
TOOL_PATTERNS: Final = Shape(
    _patterns,
    {"type": "array", "items": {"anyOf": [TEXT.schema, _PATTERN.schema]}, "minItems": 1},
)


def _at(value: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the values at a path, [] if none; a list on the way means its items, a glob its keys.

    A text on the way that begins with `{` or `[` is read as JSON, or gives [UNREADABLE].
    """
    values = [value]
    for key in path:
        items = [_decode_text(item) for item in _unpack(values, list)]
        if UNREADABLE in items:
            return [UNREADABLE]
        objects = [item for item in _unpack(items, list) if isinstance(item, dict)]
        if is_literal(key):
            values = [item[key] for item in objects if key in item]
        else:
            match = glob_test(key)
            values = [each for item in objects for name, each in item.items() if match(name)]
    return values


def _decode_text(value: Any) -> Any:
    """Return text that begins with `{` or `[` decoded (or UNREADABLE), any other value as it is."""
    is_text = isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
    return decoded_json(value) if is_text else value


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in `value`, however deep, that are no list or object, in order."""
    return _unpack([value], (dict, list))


def _unpack(values: list[Any], kinds: Any) -> Iterator[Any]:
    """Yield `values` in order; a list or dict, if in `kinds`, gives way to its contents, deeply."""
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, kinds):
            waiting += reversed(value.values() if isinstance(value, dict) else value)
        else:
            yield value
