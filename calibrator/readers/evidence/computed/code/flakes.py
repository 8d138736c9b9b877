"""The findings of pyflakes in Python code: undefined names, and mistakes in any program."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Final

from pyflakes import messages
from pyflakes.checker import Checker

from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.programs.syntax import AnyFunction, all_nodes

# Names that notebooks and exercise runners provide.
_PROVIDED: Final = word_set(
    "List Dict Tuple Optional Set Union Any Callable Iterable Iterator Sequence"
    " self cls reveal_type display _ __annotations__ __spec__ __package__"
)
_MISTAKES: Final = (
    messages.AssertTuple,
    messages.BreakOutsideLoop,
    messages.ContinueOutsideLoop,
    messages.DuplicateArgument,
    messages.IfTuple,
    messages.IsLiteral,
    messages.MultiValueRepeatedKeyLiteral,
    messages.PercentFormatMissingArgument,
    messages.PercentFormatPositionalCountMismatch,
    messages.RaiseNotImplemented,
    messages.ReturnOutsideFunction,
    messages.StringDotFormatMissingArgument,
    messages.UndefinedLocal,
    messages.YieldOutsideFunction,
)


@lru_cache(maxsize=16)
def flakes(tree: ast.Module) -> tuple[messages.Message, ...]:
    """Return the messages of pyflakes about a program; none for one that it cannot read."""
    try:
        return tuple(Checker(tree, builtins=_PROVIDED).messages)
    except (RecursionError, ValueError, AttributeError, TypeError):
        return ()


def mistakes(tree: ast.Module) -> list[str]:
    """Return the mistakes of a program that are wrong for any purpose."""
    return [_words(each) for each in flakes(tree) if isinstance(each, _MISTAKES) and _words(each)]


def undefined_names(tree: ast.Module) -> dict[str, bool]:
    """Return the undefined names of a program, and whether a function uses each."""
    functions = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in all_nodes(tree)
        if isinstance(node, AnyFunction)
    ]
    inside = {line for first, last in functions for line in range(first, last + 1)}
    found: dict[str, bool] = {}
    for each in flakes(tree):
        if isinstance(each, messages.UndefinedName):
            name = str(each.message_args[0])
            found[name] = found.get(name, False) or each.lineno in inside
    return found


def _words(message: messages.Message) -> str:
    text = str(message.message % message.message_args)
    return f"{text} (line {message.lineno})"[:200]
