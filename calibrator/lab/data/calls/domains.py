"""The domains of the scenes, from `domains.yaml`.

None shares a task, a table or a sentence with `examples/agents`, whose calls are a test:
`tests/calibrator/lab/data/calls/test_worlds.py` compares words, tool signatures and names.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class WriteTool:
    """A tool that changes a record.

    `asks` are requests with the names of fields and parameters in braces. `state` is a field and
    its required value. `late` is a field with a date and the number of days allowed after it.
    `most` is a parameter and the largest number that rules allow.
    """

    name: str
    does: str
    takes: dict[str, str]
    asks: tuple[str, ...]
    state: tuple[str, str] | None = None
    late: tuple[str, int] | None = None
    most: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of record and the tools for it."""

    name: str
    role: str
    record: str
    id_form: str  # 9 a digit, A a letter
    fields: dict[str, str]
    named_by: tuple[str, ...]  # fields by which people name a record
    find: tuple[str, str]  # a tool that lists records, and its purpose
    show: tuple[str, str]  # a tool that shows a record by its id, and its purpose
    writes: tuple[WriteTool, ...]


def _read() -> tuple[Domain, ...]:
    """Load `domains.yaml` and return its domains in the file's order.

    The words PEOPLE and TOWNS in a field's kind are replaced by the file's lists, such as
    `Ann|Bob`.
    """
    content = yaml.safe_load((files(__package__) / "domains.yaml").read_text(encoding="utf-8"))
    lists = {"PEOPLE": content["people"].strip(), "TOWNS": content["towns"].strip()}
    return tuple(_domain(each, lists) for each in content["domains"])


def _domain(values: dict[str, Any], lists: dict[str, str]) -> Domain:
    """Build a Domain from its YAML mapping `values`, from which keys are removed.

    `lists` maps `PEOPLE` and `TOWNS` to choices such as `Ann|Bob`, which replace a field's kind
    that is exactly such a word.
    """
    fields = {name: lists.get(kind, kind) for name, kind in values.pop("fields").items()}
    writes = tuple(_write(each) for each in values.pop("writes"))
    pairs: dict[str, Any] = {name: tuple(values.pop(name)) for name in ("named_by", "find", "show")}
    return Domain(**values, **pairs, fields=fields, writes=writes)


def _write(values: dict[str, Any]) -> WriteTool:
    """Build a WriteTool from its YAML mapping; lists become tuples."""
    members: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return WriteTool(**members)


DOMAINS = _read()
