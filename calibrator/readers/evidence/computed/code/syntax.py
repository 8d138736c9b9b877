"""Small functions on the syntax trees of Python."""

from __future__ import annotations

import ast
from functools import lru_cache

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
Assigned = dict[str, list[ast.expr]]


@lru_cache(maxsize=16)
def all_nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a program."""
    return tuple(ast.walk(tree))


@lru_cache(maxsize=64)
def own_nodes(function: AnyFunction) -> tuple[ast.AST, ...]:
    """Return the nodes of a function's body without those of functions and classes in it."""
    waiting: list[ast.AST] = [*reversed(function.body)]
    found: list[ast.AST] = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, AnyFunction | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))
    return tuple(found)


def call_of(node: ast.AST | None) -> tuple[ast.expr | None, str] | None:
    """Return the owner and the name of a called method, with the owner None for a function.

    Returns None for anything else.
    """
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.value, node.func.attr
    return (None, node.func.id) if isinstance(node.func, ast.Name) else None


def is_call_to(node: ast.AST | None, name: str) -> bool:
    """Return whether a node calls the function of this name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def names_in(node: ast.AST) -> set[str]:
    """Return the names that a node uses."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def text_of(node: ast.AST) -> str:
    """Return the source of a node, at most 200 characters of it."""
    return ast.unparse(node)[:200]


def assignments(node: ast.AST) -> Assigned:
    """Return the values that a part of a program assigns to each name."""
    found: Assigned = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(each.value)
    return found
