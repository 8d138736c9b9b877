"""The shape of the JSON that a Python class in a prompt describes, such as a pydantic model."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.computed.structured.json_shapes import MAX_DEPTH, JsonShape

MAX_CLASSES: Final = 12
MAX_LINES: Final = 80  # lines of a class that are read
_CLASS: Final = re.compile(r"^(?P<i>[ \t]*)class (?P<n>[A-Za-z_]\w*)[^\n]*:[^\n]*$", re.MULTILINE)
_KINDS: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "Decimal": "number",
    "bool": "boolean",
    "None": "null",
    "dict": "object",
    "Dict": "object",
    "EmailStr": "string",
    "HttpUrl": "string",
}
_LISTS: Final = frozenset({"list", "List", "Sequence", "set", "Set", "tuple", "Tuple", "conlist"})
_FORMS: Final = {"date": "YYYY-MM-DD", "datetime": "YYYY-MM-DDTHH:MM", "time": "HH:MM"}
_FORBIDS: Final = re.compile(r"""extra\s*=\s*["']?(?:Extra\.)?forbid""")


def shape_of_classes(text: str) -> JsonShape | None:
    """Return the shape that Python classes in a text describe, such as a pydantic model.

    It is that of the last class with fields that no other class uses. None without one.
    """
    classes = {node.name: node for node in _classes_in(text)}
    if not classes:
        return None
    used = {
        name.id
        for node in classes.values()
        for field in _fields_of(node)
        for name in ast.walk(field.annotation)
        if isinstance(name, ast.Name)
    }
    whole = [name for name in classes if name not in used and [*_fields_of(classes[name])]]
    return _of_class(classes[whole[-1]], classes, 0) if whole else None


def _classes_in(text: str) -> Iterator[ast.ClassDef]:
    """Yield the syntax trees of classes in a text, at most MAX_CLASSES; others are skipped."""
    for _, found in zip(range(MAX_CLASSES), _CLASS.finditer(text), strict=False):
        lines = [found[0]]
        for line in text[found.end() + 1 :].split("\n", MAX_LINES)[:MAX_LINES]:
            if line.strip() and len(line) - len(line.lstrip()) <= len(found["i"]):
                break
            lines.append(line)
        try:
            (node,) = ast.parse(textwrap.dedent("\n".join(lines))).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(node, ast.ClassDef):
            yield node


def _fields_of(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """Yield the annotated fields of a class, such as `name: str`."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each


def _of_class(node: ast.ClassDef, classes: dict[str, ast.ClassDef], depth: int) -> JsonShape:
    """Return the shape of a class, or the choices of an enumeration in lower case.

    `classes` are all classes by name; `depth` is the nesting so far.
    """
    members = [
        each.value.value
        for each in node.body
        if isinstance(each, ast.Assign)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
    ]
    if members and any("Enum" in ast.unparse(base) for base in node.bases):
        return JsonShape(choices=tuple(map(str.casefold, members)))
    shape = JsonShape(kinds=frozenset({"object"}), is_schema=True)
    shape.is_closed = _FORBIDS.search(ast.unparse(node)) is not None
    for field in _fields_of(node):
        if not isinstance(field.target, ast.Name) or field.target.id == "model_config":
            continue
        name = field.target.id
        shape.fields[name] = _of_type(field.annotation, classes, depth + 1)
        if field.value is not None and "..." not in ast.unparse(field.value):
            shape.optional.add(name)
    return shape


def _of_type(node: ast.expr, classes: dict[str, ast.ClassDef], depth: int) -> JsonShape:
    """Return the shape of an annotation such as `int | None`; an empty one for an unknown type."""
    if depth > MAX_DEPTH:
        return JsonShape()
    match node:
        case ast.Constant(value=None):
            return JsonShape(kinds=frozenset({"null"}), is_schema=True)
        case ast.Name(id=name) if name in classes:
            return _of_class(classes[name], classes, depth)
        case ast.Name(id=name):
            if name in _FORMS:
                return JsonShape(kinds=frozenset({"string"}), form=_FORMS[name], is_schema=True)
            if name in _LISTS:
                return JsonShape(kinds=frozenset({"array"}), is_schema=True)
            return _of_kind(_KINDS.get(name, ""))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either(_of_type(left, classes, depth + 1), _of_type(right, classes, depth + 1))
        case ast.Subscript(value=value, slice=inner):
            return _of_generic(ast.unparse(value).split(".")[-1], inner, classes, depth + 1)
    return JsonShape()


def _of_generic(
    name: str, inner: ast.expr, classes: dict[str, ast.ClassDef], depth: int
) -> JsonShape:
    """Return the shape of `name[inner]`, such as `list[Item]` or `Literal["a", "b"]`."""
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        values = [each.value for each in parts if isinstance(each, ast.Constant)]
        texts = tuple(each.casefold() for each in values if isinstance(each, str))
        return JsonShape(choices=texts) if len(texts) == len(parts) else JsonShape()
    if name == "Optional":
        return _either(_of_type(parts[0], classes, depth), _of_kind("null"))
    if name == "Union":
        shape = _of_type(parts[0], classes, depth)
        for each in parts[1:]:
            shape = _either(shape, _of_type(each, classes, depth))
        return shape
    if name in _LISTS:
        items = _of_type(parts[0], classes, depth)
        return JsonShape(kinds=frozenset({"array"}), items=items, is_schema=True)
    if name == "Annotated":
        return _of_type(parts[0], classes, depth)
    return _of_kind(_KINDS.get(name, ""))


def _of_kind(kind: str) -> JsonShape:
    """Return the shape of a type of JSON Schema, such as `string`; an empty one for ""."""
    return JsonShape(kinds=frozenset({kind}), is_schema=True) if kind else JsonShape()


def _either(one: JsonShape, other: JsonShape) -> JsonShape:
    """Return the shape of a value that may have either of two; empty if they cannot be merged.

    Only null can join an object or list, whose shape is changed in place.
    """
    for first, second in ((one, other), (other, one)):
        if second.kinds == {"null"} and not second.fields:
            kinds = first.kinds | {"null"} if first.kinds else frozenset()
            first.kinds = kinds
            return first
    if one.fields or other.fields or one.items or other.items or not (one.kinds and other.kinds):
        return JsonShape()
    return JsonShape(kinds=one.kinds | other.kinds, is_schema=True)
