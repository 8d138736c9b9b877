"""The values of expressions of a program, computed on their syntax trees with strict limits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any, Final

from calibrator.readers.evidence.computed.programs import values
from calibrator.readers.evidence.computed.programs.values import (
    NotComputableError,
    RaisedError,
)

MAX_STEPS: Final = 6_000  # nodes of a program that are computed, with repetitions
MAX_DEPTH: Final = 40  # calls within calls
MODULES: Final = frozenset(("math", "re", "string", "statistics"))
MISSING: Final = object()


class ReturnedError(Exception):
    """The value that a function returns."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Function:
    """A function or lambda of the program, with the names around it."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> None:
        self.node = node
        self.scope = scope


class Scope:
    """The names of a function or of the program."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.names: dict[str, Any] = {}
        self.outer = outer

    def find(self, name: str) -> Any:
        """Return the value of a name here or in a scope around it; MISSING if it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return MISSING


class Expressions:
    """The expressions of a program; `printed` are the lines that it has written."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.scope = Scope()
        self.printed: list[str] = []
        self.steps = steps  # that are left
        self._depth = 0

    def run_statements(self, body: list[ast.stmt], scope: Scope) -> None:
        """Raise NotComputableError; the subclass with statements overrides it."""
        raise NotComputableError

    def _step(self, cost: int = 1) -> None:
        """Subtract a cost from the steps left. Raises NotComputableError if they are used up."""
        self.steps -= cost
        if self.steps < 0:
            raise NotComputableError

    def _bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Assign a value to a name, to names in a tuple, or to an element of a list or dict.

        Raises NotComputableError for other targets, and RaisedError for a wrong number of names.
        """
        self._step()
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = values.elements(value)
            stars = [at for at, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
            if stars:
                raise NotComputableError
            if len(parts) != len(target.elts):
                raise RaisedError("ValueError")
            for each, part in zip(target.elts, parts, strict=True):
                self._bind(each, part, scope)
        elif isinstance(target, ast.Subscript):
            owner = self._value(target.value, scope)
            if not isinstance(owner, list | dict):
                raise NotComputableError
            values.put(owner, self._key(target, scope), value)
        else:
            raise NotComputableError

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression. Raises NotComputableError for an unknown kind."""
        self._step()
        method = getattr(self, f"_of_{type(node).__name__}", None)
        if method is None:
            raise NotComputableError
        return method(node, scope)

    def _elements(self, node: ast.expr, scope: Scope) -> list[Any]:
        """Return the elements of an expression's value and count a step for each."""
        found = values.elements(self._value(node, scope))
        self._step(len(found))
        return found

    def _of_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        """Return a literal's value.

        Raises NotComputableError for bytes and values that are too large.
        """
        if not isinstance(node.value, str | int | float | bool | None):
            raise NotComputableError
        return values.check_value(node.value)

    def _of_Name(self, node: ast.Name, scope: Scope) -> Any:
        """Return the value of a name, or the built-in function.

        Raises NotComputableError for others.
        """
        value = scope.find(node.id)
        if value is not MISSING:
            return value
        if node.id in values.FUNCTIONS:
            return values.FUNCTIONS[node.id]
        raise NotComputableError

    def _of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> str:
        """Return the text of an f-string. Raises NotComputableError for rare conversions."""
        parts = []
        for each in node.values:
            if isinstance(each, ast.Constant):
                parts.append(str(each.value))
            elif isinstance(each, ast.FormattedValue) and each.conversion in (-1, 115, 114):
                spec = "" if each.format_spec is None else self._value(each.format_spec, scope)
                value = self._value(each.value, scope)
                values.weight(value)
                if each.conversion == 114:
                    value = values.FUNCTIONS["repr"](value)
                parts.append(values.format_value(value, spec))
            else:
                raise NotComputableError
        return str(values.check_value("".join(parts)))

    def _of_List(self, node: ast.List, scope: Scope) -> list[Any]:
        """Return the list of a literal; elements may have a star."""
        return [*self._all(node.elts, scope)]

    def _of_Tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        """Return the tuple of a literal; elements may have a star."""
        return (*self._all(node.elts, scope),)

    def _of_Set(self, node: ast.Set, scope: Scope) -> Any:
        """Return the set of a literal. Raises RaisedError if an element is not hashable."""
        return values.set_of([*self._all(node.elts, scope)])

    def _of_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        """Return the dict of a literal. Raises NotComputableError for `**other`."""
        mapping: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise NotComputableError
            values.put(mapping, self._value(key, scope), self._value(value, scope))
        return mapping

    def _all(self, nodes: list[ast.expr], scope: Scope) -> Iterator[Any]:
        """Yield the values of expressions, and the elements of those with a star."""
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._elements(node.value, scope)
            else:
                yield self._value(node, scope)

    def _of_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        """Return the value of an arithmetic operator, such as `a + b`."""
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        return values.combine(type(node.op), left, right)

    def _of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        """Return `not x`, `-x` or `+x`. Raises NotComputableError for others."""
        value = self._value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return not value
        if not isinstance(value, int | float) or not isinstance(node.op, ast.USub | ast.UAdd):
            raise NotComputableError
        return -value if isinstance(node.op, ast.USub) else value

    def _of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        """Return the value of `and` or `or`; later operands are computed only if they matter."""
        is_or, value = isinstance(node.op, ast.Or), None
        for each in node.values:
            value = self._value(each, scope)
            if bool(value) == is_or:
                return value
        return value

    def _of_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        """Return whether a chain of comparisons such as `1 < x < 3` holds."""
        left = self._value(node.left, scope)
        for kind, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other, scope)
            if not values.compare(type(kind), left, right):
                return False
            left = right
        return True

    def _of_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        """Return the value of `a if test else b`; the other branch is not computed."""
        return self._value(node.body if self._value(node.test, scope) else node.orelse, scope)

    def _of_Lambda(self, node: ast.Lambda, scope: Scope) -> Function:
        """Return the lambda as a function of this scope."""
        return Function(node, scope)

    def _of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        """Bind the value of `name := value` in the scope and return it."""
        value = self._value(node.value, scope)
        self._bind(node.target, value, scope)
        return value

    def _key(self, node: ast.Subscript, scope: Scope) -> Any:
        """Return the value of an index, or a slice of whole numbers.

        Raises RaisedError for others.
        """
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            ends = [None if each is None else self._value(each, scope) for each in bounds]
            if not all(each is None or isinstance(each, int) for each in ends):
                raise RaisedError("TypeError")
            return slice(*ends)
        return self._value(node.slice, scope)

    def _of_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        """Return an element or slice. Raises RaisedError for a missing one."""
        owner = self._value(node.value, scope)
        if not isinstance(owner, str | list | tuple | dict):
            raise NotComputableError
        key = self._key(node, scope)
        values.weight(key if not isinstance(key, slice) else owner)
        return values.guarded_call(owner.__getitem__, key)

    def _rounds(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        """Yield `scope` once for each element of a comprehension, its names bound in it."""
        if not generators:
            yield scope
            return
        first = generators[0]
        for each in self._elements(first.iter, scope):
            self._bind(first.target, each, scope)
            if all(self._value(test, scope) for test in first.ifs):
                yield from self._rounds(generators[1:], scope)

    def _of_ListComp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> list[Any]:
        """Return the list of a comprehension or generator expression."""
        inner = Scope(scope)
        return [self._value(node.elt, inner) for _ in self._rounds(node.generators, inner)]

    _of_GeneratorExp = _of_ListComp

    def _of_SetComp(self, node: ast.SetComp, scope: Scope) -> Any:
        """Return the set of a comprehension."""
        inner = Scope(scope)
        return values.set_of(
            [self._value(node.elt, inner) for _ in self._rounds(node.generators, inner)]
        )

    def _of_DictComp(self, node: ast.DictComp, scope: Scope) -> Any:
        """Return the dict of a comprehension."""
        inner = Scope(scope)
        mapping: dict[Any, Any] = {}
        for _ in self._rounds(node.generators, inner):
            values.put(mapping, self._value(node.key, inner), self._value(node.value, inner))
        return mapping

    def _of_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        """Return a constant or function of an imported module, such as `math.pi`.

        Raises NotComputableError for other attributes.
        """
        name = ast.unparse(node) if isinstance(node.value, ast.Name) else ""
        if self.scope.find(name.partition(".")[0]) == name.partition(".")[0]:
            for table in (values.CONSTANTS, values.FUNCTIONS):
                if name in table:
                    return table[name]
        raise NotComputableError

    def _of_Call(self, node: ast.Call, scope: Scope) -> Any:
        """Return the value of a call of a method, a built-in function or one of the program.

        Raises NotComputableError for `**options` and for unknown functions.
        """
        named = {each.arg: each.value for each in node.keywords if each.arg is not None}
        if len(named) != len(node.keywords):
            raise NotComputableError
        owner: Any = MISSING
        if isinstance(node.func, ast.Attribute):
            is_module = isinstance(node.func.value, ast.Name) and node.func.value.id in MODULES
            owner = MISSING if is_module else self._value(node.func.value, scope)
        args = [*self._all(node.args, scope)]
        more = {name: self._value(value, scope) for name, value in named.items()}
        if owner is not MISSING:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            return self._method(owner, method, args, more)
        if isinstance(node.func, ast.Name) and scope.find(node.func.id) is MISSING:
            if node.func.id == "print":
                return self._print(args, more)
            if node.func.id in ("map", "filter"):
                return self._map_values(node.func.id, args)
            if node.func.id == "isinstance":
                return self._is_instance(node, args)
        function = self._value(node.func, scope)
        if node.func.__class__ is ast.Name and set(more) & {"key", "reverse", "default"}:
            return self._call_with_key(function, args, more)
        return self._apply(function, args, more)

    def _apply(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Return the value of a call; None if a function of the program ends without `return`.

        Raises NotComputableError for deep recursion and unknown calls.
        """
        if not isinstance(function, Function):
            if named or not callable(function):
                raise NotComputableError
            self._step(values.weight(args))
            return values.guarded_call(function, *args)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotComputableError
        inner = self._arguments(function, args, named)
        try:
            if isinstance(function.node, ast.Lambda):
                return self._value(function.node.body, inner)
            self.run_statements(function.node.body, inner)
        except ReturnedError as result:
            return result.value
        finally:
            self._depth -= 1
        return None

    def _arguments(self, function: Function, args: list[Any], named: dict[str, Any]) -> Scope:
        """Return the scope of a call with the parameters bound.

        Raises NotComputableError for stars, mutable defaults, and arguments that do not fit.
        """
        wanted = function.node.args
        names = [each.arg for each in (*wanted.posonlyargs, *wanted.args)]
        if wanted.vararg or wanted.kwarg or wanted.kwonlyargs or len(args) > len(names):
            raise NotComputableError
        inner = Scope(function.scope)
        for name, default in zip(reversed(names), reversed(wanted.defaults), strict=False):
            if isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call):
                raise NotComputableError  # all calls share it
            inner.names[name] = self._value(default, function.scope)
        inner.names.update(zip(names, args, strict=False))
        inner.names.update(named)
        if set(inner.names) != set(names):
            raise NotComputableError
        return inner

    def _print(self, args: list[Any], named: dict[str, Any]) -> None:
        """Add what `print(*args)` writes to `printed`, line by line. Only `sep` may be named."""
        if set(named) - {"sep"}:
            raise NotComputableError
        line = str(named.get("sep", " ")).join(map(values.text_of, args))
        self.printed += str(values.check_value(line)).split("\n")
        if len(self.printed) > 200:
            raise NotComputableError

    def _map_values(self, name: str, args: list[Any]) -> list[Any]:
        """Return the list of `map(*args)` or `filter(*args)`."""
        if len(args) != 2:
            raise NotComputableError
        function, every = args[0], values.elements(args[1])
        results = [
            each if function is None else self._apply(function, [each], {}) for each in every
        ]
        return (
            results
            if name == "map"
            else [e for e, is_in in zip(every, results, strict=True) if is_in]
        )

    def _is_instance(self, node: ast.Call, args: list[Any]) -> bool:
        """Return the value of `isinstance` for known types.

        Raises NotComputableError for others.
        """
        names = [each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)]
        if not names or any(name not in values.TYPES for name in names):
            raise NotComputableError
        return isinstance(args[0], tuple(values.TYPES[name] for name in names))

    def _method(self, owner: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Return the value of a method; `sort` changes the list in place and returns None."""
        self._step(values.weight((owner, args)))
        if name == "sort" and isinstance(owner, list):
            owner[:] = self._sort(owner, named)
            return None
        if named:
            raise NotComputableError
        return values.method_of(owner, name, args)

    def _call_with_key(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Return the value of `sorted`, `min` or `max` with `key`, `reverse` or `default`."""
        if len(args) != 1:
            raise NotComputableError
        every = [*args[0]] if isinstance(args[0], set) else values.elements(args[0])
        if function is values.FUNCTIONS["sorted"]:
            return self._sort(every, named)
        if not every and "default" in named:
            return named["default"]
        if function not in (values.FUNCTIONS["min"], values.FUNCTIONS["max"]) or not every:
            raise NotComputableError
        first = self._sort(every, {"key": named.get("key")})
        if function is values.FUNCTIONS["min"]:
            return first[0]
        return self._sort(every, {"key": named.get("key"), "reverse": True})[0]

    def _sort(self, every: list[Any], named: dict[str, Any]) -> list[Any]:
        """Return values sorted by `key` and `reverse`.

        Raises NotComputableError for other options.
        """
        if set(named) - {"key", "reverse"}:
            raise NotComputableError
        function = named.get("key")
        keys = [each if function is None else self._apply(function, [each], {}) for each in every]
        pairs = list(zip(keys, every, strict=True))
        self._step(8 * values.weight(keys))

        def order(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
            """Return -1, 0 or 1 by the order of two keys."""
            if values.compare(ast.Lt, one[0], other[0]):
                return -1
            return int(values.compare(ast.Lt, other[0], one[0]))

        pairs.sort(key=cmp_to_key(order), reverse=bool(named.get("reverse")))
        return [each for _, each in pairs]
