"""An evaluator of small Python programs on their syntax trees.

Nothing is compiled, imported or executed: numbers, texts and collections are computed by this
module, with limits of steps and sizes. It knows functions, loops, conditions, comprehensions and
some fifty built-in functions and methods; a program that needs more is not computable.
"""

from __future__ import annotations

import ast
from typing import Any

from calibrator.readers.evidence.computed.programs import values
from calibrator.readers.evidence.computed.programs.expressions import (
    MAX_STEPS,
    MODULES,
    Expressions,
    Function,
    ReturnedError,
    Scope,
)
from calibrator.readers.evidence.computed.programs.values import (
    NotComputableError,
    RaisedError,
)


class _LoopEndError(Exception):
    """The end of a round of a loop, or of the loop."""

    def __init__(self, is_end: bool) -> None:
        self.is_end = is_end


class Evaluator(Expressions):
    """One evaluation of a program; `printed` are the lines that it has written."""

    def __init__(self, tree: ast.Module, steps: int = MAX_STEPS) -> None:
        super().__init__(steps)
        self._tree = tree

    def define(self) -> None:
        """Read the functions, imports and assignments at the top of the program, nothing else."""
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef | ast.Import | ast.ImportFrom | ast.Assign):
                self.run_statements([statement], self.scope)

    def run(self) -> None:
        """Compute the whole program; raises NotComputableError or RaisedError where that fails."""
        self.run_statements(self._tree.body, self.scope)

    def value_of(self, node: ast.expr) -> Any:
        """Return the value of an expression.

        Raises NotComputableError or RaisedError without one.
        """
        value = self._value(node, self.scope)
        values.weight(value)
        return value

    def call(self, name: str, args: list[Any]) -> Any:
        """Return the value of the program's function `name` for these arguments.

        Raises NotComputableError if there is no such function or no value, and RaisedError for an
        error.
        """
        function = self.scope.find(name)
        if not isinstance(function, Function):
            raise NotComputableError
        value = self._apply(function, args, {})
        values.weight(value)
        return value

    def run_statements(self, body: list[ast.stmt], scope: Scope) -> None:
        """Compute statements in order in a scope. Raises NotComputableError for an unknown one."""
        for statement in body:
            self._step()
            method = getattr(self, f"_do_{type(statement).__name__}", None)
            if method is None:
                raise NotComputableError
            method(statement, scope)

    def _do_Expr(self, node: ast.Expr, scope: Scope) -> None:
        """Compute an expression for its effects."""
        self._value(node.value, scope)

    def _do_Pass(self, node: ast.Pass, scope: Scope) -> None:
        pass

    def _do_Return(self, node: ast.Return, scope: Scope) -> None:
        """Raise ReturnedError with the value, which the call catches."""
        raise ReturnedError(None if node.value is None else self._value(node.value, scope))

    def _do_Break(self, node: ast.Break, scope: Scope) -> None:
        """Raise _LoopEndError, which ends the loop around it."""
        raise _LoopEndError(True)

    def _do_Continue(self, node: ast.Continue, scope: Scope) -> None:
        """Raise _LoopEndError, which ends the round of the loop around it."""
        raise _LoopEndError(False)

    def _do_Raise(self, node: ast.Raise, scope: Scope) -> None:
        """Raise RaisedError with the name of the error's class.

        Raises NotComputableError if that is no plain name.
        """
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if not isinstance(error, ast.Name):
            raise NotComputableError
        raise RaisedError(error.id)

    def _do_Assert(self, node: ast.Assert, scope: Scope) -> None:
        """Raise RaisedError("AssertionError") unless the test is true."""
        if not self._value(node.test, scope):
            raise RaisedError("AssertionError")

    def _do_If(self, node: ast.If, scope: Scope) -> None:
        """Run the branch that the test selects."""
        self.run_statements(node.body if self._value(node.test, scope) else node.orelse, scope)

    def _do_For(self, node: ast.For, scope: Scope) -> None:
        """Run a `for` loop, and its `else` unless `break` ended it."""
        for each in self._elements(node.iter, scope):
            self._bind(node.target, each, scope)
            if self._round(node.body, scope):
                return
        self.run_statements(node.orelse, scope)

    def _do_While(self, node: ast.While, scope: Scope) -> None:
        """Run a `while` loop, and its `else` unless `break` ended it."""
        while self._value(node.test, scope):
            if self._round(node.body, scope):
                return
        self.run_statements(node.orelse, scope)

    def _round(self, body: list[ast.stmt], scope: Scope) -> bool:
        """Compute one round of a loop and return whether `break` ended the loop."""
        self._step()
        try:
            self.run_statements(body, scope)
        except _LoopEndError as leave:
            return leave.is_end
        return False

    def _do_Try(self, node: ast.Try, scope: Scope) -> None:
        """Run a `try`; the first handler that fits the error's name runs.

        Raises NotComputableError for `finally`, and RaisedError if no handler fits.
        """
        if node.finalbody:
            raise NotComputableError
        try:
            self.run_statements(node.body, scope)
        except RaisedError as error:
            for handler in node.handlers:
                names = _names(handler.type)
                caught = {str(error), "Exception"}
                if str(error) in ("IndexError", "KeyError"):
                    caught.add("LookupError")
                if handler.type is None or names & caught:
                    self.run_statements(handler.body, scope)
                    return
            raise
        self.run_statements(node.orelse, scope)

    def _do_FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> None:
        """Bind a function in the scope; generators and decorated functions stay unknown."""
        if node.decorator_list or any(
            isinstance(e, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal)
            for e in ast.walk(node)
        ):
            return  # it is unknown to its callers
        scope.names[node.name] = Function(node, scope)

    def _do_Import(self, node: ast.Import, scope: Scope) -> None:
        for each in node.names:
            if each.asname is None and each.name in MODULES:
                scope.names[each.name] = each.name

    def _do_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        """Bind the imported names that the evaluator offers; others stay unknown."""
        for each in node.names:
            name = f"{node.module}.{each.name}"
            if name in values.CONSTANTS:
                scope.names[each.asname or each.name] = values.CONSTANTS[name]
            elif name in values.FUNCTIONS:
                scope.names[each.asname or each.name] = values.FUNCTIONS[name]

    def _do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        """Compute the value once and bind it to each target."""
        value = self._value(node.value, scope)
        for target in node.targets:
            self._bind(target, value, scope)

    def _do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        """Bind the value of `x: int = 1`; do nothing without a value."""
        if node.value is not None:
            self._bind(node.target, self._value(node.value, scope), scope)

    def _do_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        """Compute `target += value`; a list is extended in place.

        Raises RaisedError for a name without value, and NotComputableError for other targets.
        """
        name = ast.Name(node.target.id, ast.Load()) if isinstance(node.target, ast.Name) else None
        if name is None and isinstance(node.target, ast.Subscript):
            old = self._of_Subscript(node.target, scope)
        elif isinstance(name, ast.Name):
            if name.id not in scope.names:
                raise RaisedError("UnboundLocalError")
            old = scope.names[name.id]
        else:
            raise NotComputableError
        value = self._value(node.value, scope)
        if isinstance(old, list) and isinstance(node.op, ast.Add):
            old.extend(values.elements(value))
            values.weight(old)
            return
        self._bind(node.target, values.combine(type(node.op), old, value), scope)

    def _do_Delete(self, node: ast.Delete, scope: Scope) -> None:
        """Remove elements of lists and dicts in place.

        Raises NotComputableError for other targets.
        """
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                raise NotComputableError
            owner, key = self._value(target.value, scope), self._key(target, scope)
            if not isinstance(owner, list | dict):
                raise NotComputableError
            values.guarded_call(owner.__delitem__, key)


def _names(node: ast.expr | None) -> set[str]:
    """Return the identifiers in an expression, such as the classes of an `except`.

    Empty for None.
    """
    inner = [] if node is None else ast.walk(node)
    return {each.id for each in inner if isinstance(each, ast.Name)}
