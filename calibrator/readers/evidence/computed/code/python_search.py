"""Binary searches in Python that miss an element or never end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from calibrator.readers.evidence.computed.programs.syntax import (
    AnyFunction,
    all_nodes,
    assignments,
    names_in,
    text_of,
)
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding


def search_bugs(tree: ast.Module) -> Iterator[Finding]:
    """Yield the bugs of loops that halve a range."""
    for node in all_nodes(tree):
        if isinstance(node, AnyFunction | ast.Module):
            for at, statement in enumerate(node.body):
                if isinstance(statement, ast.While):
                    yield from _of_loop(statement, node.body[at + 1 :])


def _of_loop(loop: ast.While, rest: list[ast.stmt]) -> Iterator[Finding]:
    """Yield the bug of one loop; `rest` are the statements after it."""
    test = loop.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return
    low, high = test.left, test.comparators[0]
    if not (isinstance(low, ast.Name) and isinstance(high, ast.Name)):
        return
    if not isinstance(test.ops[0], ast.Lt | ast.LtE):
        return
    values = assignments(loop)
    lows = {text_of(each) for each in values.get(low.id, [])}
    highs = {text_of(each) for each in values.get(high.id, [])}
    returns = any(isinstance(each, ast.Return) for each in ast.walk(loop))
    after = rest[0] if rest else None
    is_missed = isinstance(after, ast.Return) and after.value is not None and not names_in(after)
    for middle in _middles(values, {low.id, high.id}):
        if middle in lows and highs:
            yield Finding(False, -MAX_SHIFT, f"the loop does not end where {low.id} = {middle}")
        elif (
            isinstance(test.ops[0], ast.Lt)
            and (lows, highs) == ({f"{middle} + 1"}, {f"{middle} - 1"})
            and returns
            and is_missed
        ):
            reason = f"the search ends before its last element: while {text_of(test)}"
            yield Finding(False, -MAX_SHIFT, reason)


def _middles(values: dict[str, list[ast.expr]], bounds: set[str]) -> Iterator[str]:
    """Yield the names of the values halfway between two bounds, rounded down."""
    for name, made in values.items():
        half = made[0]
        if isinstance(half, ast.BinOp) and isinstance(half.op, ast.Add):
            half = half.right  # low + (high - low) // 2
        if not (isinstance(half, ast.BinOp) and isinstance(half.op, ast.FloorDiv)):
            continue
        has_constant = any(isinstance(each, ast.Constant) for each in ast.walk(half.left))
        if names_in(half.left) == bounds and not has_constant and len(made) == 1:
            yield name
