"""Habits of Python code that are usually bugs; some requests make them certain bugs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.computed.programs.syntax import (
    AnyFunction,
    all_nodes,
    call_of,
    is_call_to,
    names_in,
    own_nodes,
    text_of,
)
from calibrator.readers.evidence.finding import MAX_SHIFT, Finding

_FRESH: Final = re.compile(
    r"\b(?:new|fresh|own|separate|empty|each (?:call|time)|every (?:call|time)|independent"
    r"|default\w*|(?:earlier|previous|last|all) calls?|remember\w*|shared?|keeps|neue?[rsn]?"
    r"|eigene[rsn]?|leere?[rsn]?|nuev[oa]|vac[ií]o|nouve\w+|vide)\b",
    re.IGNORECASE,
)
_FROM_OUTSIDE: Final = re.compile(
    r"\b(?:form|user|users|input|login|log ?in|search|request|web|untrusted|e-?mail|name|query"
    r"|safe\w*|secur\w*|inject\w*|param\w*|api|endpoint|site)\b",
    re.IGNORECASE,
)
_SQL: Final = re.compile(
    r"^\s*(?:select|insert|update|delete|replace)\b.*\b(?:from|into|set|values|where)\b",
    re.IGNORECASE | re.DOTALL,
)
_VALUE_FOLLOWS: Final = re.compile(
    r"(?:=|<|>|\blike|\bin\s*\(|\bvalues\s*\(|,)\s*['\"%]*$", re.IGNORECASE
)
_MARKS: Final = re.compile(
    r"mark|placehold|qs?$|slots|column|field|table|order|sort", re.IGNORECASE
)
_SECRET: Final = re.compile(
    r"\b(?:passwords?|token|secret|session|api key|reset link|credential|kennwort|passwort"
    r"|contraseña|mot de passe)\b",
    re.IGNORECASE,
)
_UTC: Final = re.compile(
    r"\b(?:utc|time ?zones?|convert\w*|zeitzone|zona horaria)\b", re.IGNORECASE
)
_HAS_OFFSET: Final = re.compile(r"[+-]\d\d:?\d\d$|%z$")
_SLOT: Final = re.compile(r"\{([a-z_]\w*)\}")


def habit_bugs(tree: ast.Module, request: str) -> Iterator[Finding]:
    """Yield findings of habits that are often bugs; the request makes some of them certain."""
    for node in all_nodes(tree):
        if isinstance(node, AnyFunction):
            yield from _mutable_default(node, request)
            yield from _ends_in_first_round(node)
            yield from _unfilled_slot(node)
        elif isinstance(node, ast.For):
            yield from _late_binding(node)
        elif isinstance(node, ast.ListComp | ast.DictComp):
            yield from _late_binding_of_list(node)
        elif isinstance(node, ast.ClassDef):
            yield from _shared_attribute(node)
        elif isinstance(node, ast.Call):
            yield from _injection(node, request)
            yield from _unsafe_call(node, request)
            yield from _wrong_zone(node, request)
            yield from _letters_stripped(node)


def _is_mutable(node: ast.expr | None) -> bool:
    """Return whether an expression makes a list, dict or set, such as `[]` or `dict()`."""
    if isinstance(node, ast.List | ast.Dict | ast.Set):
        return True
    return any(is_call_to(node, name) for name in ("list", "dict", "set", "defaultdict"))


def _mutable_default(function: AnyFunction, request: str) -> Iterator[Finding]:
    """Find a default such as `items=[]` that the function changes, so that all calls share it.

    It is a certain bug if the request speaks of fresh lists or earlier calls.
    """
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(with_default, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    shared = {argument.arg for argument, default in pairs if _is_mutable(default)}
    if not shared:
        return
    for node in own_nodes(function):
        changed = ""
        called = call_of(node)
        if called and isinstance(called[0], ast.Name):
            is_changing = called[1] in ("append", "add", "extend", "update", "insert", "setdefault")
            changed = called[0].id if is_changing else ""
        elif (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
        ):
            changed = node.value.id if isinstance(node.value, ast.Name) else ""
        if changed in shared:
            reason = f"the default value of {changed} is shared by all calls"
            is_asked = bool(_FRESH.search(request))
            yield Finding(False if is_asked else None, -MAX_SHIFT if is_asked else -1.2, reason)
            return


def _shared_attribute(node: ast.ClassDef) -> Iterator[Finding]:
    """Find a list or dict of the class that methods change by `self.items.append(..)`.

    Nothing if a method assigns the attribute, or the class has a decorator.
    """
    shared = {
        target.id
        for each in node.body
        if isinstance(each, ast.Assign) and _is_mutable(each.value)
        for target in each.targets
        if isinstance(target, ast.Name) and not target.id.isupper()
    }
    if not shared or node.decorator_list:
        return
    own = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and text_of(each.value) == "self"
    }
    for each in ast.walk(node):
        called = call_of(each)
        if called and called[1] in ("append", "add", "extend", "update", "insert"):
            owner = called[0]
            if (
                isinstance(owner, ast.Attribute)
                and text_of(owner.value) == "self"
                and owner.attr in shared - own
            ):
                yield Finding(None, -1.5, f"all instances share the attribute {owner.attr}")
                return


def _late_binding(loop: ast.For) -> Iterator[Finding]:
    """Find functions stored in a loop that see only the last value of the loop's variable.

    An example is `for i in range(3): calls.append(lambda: i)`.
    """
    variables = names_in(loop.target)
    for node in ast.walk(loop):
        called = call_of(node)
        is_stored = called is not None and called[1] in ("append", "add", "insert", "connect")
        if is_stored and isinstance(node, ast.Call):
            stored: list[ast.expr] = node.args
        elif (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)) or (
            isinstance(node, ast.keyword) and node.arg == "command"
        ):
            stored = [node.value]
        else:
            continue
        yield from _late_bindings(stored, variables)


def _late_binding_of_list(node: ast.ListComp | ast.DictComp) -> Iterator[Finding]:
    """Find lambdas in a comprehension that see only its variable's last value.

    An example is `[lambda: i for i in x]`.
    """
    variables = set().union(*(names_in(each.target) for each in node.generators))
    yield from _late_bindings(
        [node.elt if isinstance(node, ast.ListComp) else node.value], variables
    )


def _late_bindings(stored: list[ast.expr], variables: set[str]) -> Iterator[Finding]:
    """Yield a finding for each stored lambda that uses one of `variables` without binding it."""
    for each in stored:
        if isinstance(each, ast.Lambda):
            own = {argument.arg for argument in (*each.args.args, *each.args.kwonlyargs)}
            late = (names_in(each.body) & variables) - own
            if late:
                yield Finding(None, -2.0, f"every lambda sees the last value of {min(late)}")


def _ends_in_first_round(function: AnyFunction) -> Iterator[Finding]:
    """Find a loop whose last statement returns in both branches of an `if`; at most one."""
    for node in own_nodes(function):
        if not isinstance(node, ast.For | ast.While) or not node.body:
            continue
        last = node.body[-1]
        if (
            isinstance(last, ast.If)
            and len(last.body) == 1
            and len(last.orelse) == 1
            and all(isinstance(each, ast.Return) for each in (last.body[0], last.orelse[0]))
        ):
            yield Finding(None, -2.0, "the loop returns in its first round")
            return


def _unfilled_slot(function: AnyFunction) -> Iterator[Finding]:
    """Find a returned or printed text such as `"Hello {name}"` that lacks the `f` before it.

    Only names of the function's parameters count; at most one finding.
    """
    known = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    for node in own_nodes(function):
        if isinstance(node, ast.Return):
            texts: list[ast.expr | None] = [node.value]
        elif is_call_to(node, "print") and isinstance(node, ast.Call):
            texts = [*node.args]
        else:
            continue
        for text in texts:
            if (
                isinstance(text, ast.Constant)
                and isinstance(text.value, str)
                and set(_SLOT.findall(text.value[:1_000])) & known
            ):
                yield Finding(None, -2.0, "a text with {names} has no f before it")
                return


def _pieces(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return (text before, value) of each value that is inserted into a text; empty for others.

    It reads f-strings, `"..%s" % x`, `"..".format(x)` and `".." + x`.
    """
    if isinstance(node, ast.JoinedStr):
        found, before = [], ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                found.append((before, part.value))
        return found
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text = node.left.value if isinstance(node.left, ast.Constant) else None
        if isinstance(text, str) and "%s" in text:
            return [(text.partition("%s")[0], node.right)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = node.left
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
            node, left = left, left.left
        if isinstance(left, ast.Constant) and isinstance(left.value, str):
            return [(left.value, node.right)]
    called = call_of(node)
    if (
        called
        and called[1] == "format"
        and isinstance(called[0], ast.Constant)
        and isinstance(node, ast.Call)
        and isinstance(called[0].value, str)
        and node.args
    ):
        return [(called[0].value.partition("{")[0], node.args[0])]
    return []


def _injection(call: ast.Call, request: str) -> Iterator[Finding]:
    """Find SQL assembled from values, such as `execute(f"... WHERE name = '{name}'")`.

    It is a certain bug if the request speaks of input from outside, such as a form.
    """
    called = call_of(call)
    if called is None or called[1] not in ("execute", "executemany", "read_sql", "fetch", "raw"):
        return
    for before, value in _pieces(call.args[0]) if call.args else ():
        names = text_of(value)
        is_text = isinstance(value, ast.Constant) or _MARKS.search(names) or names.isupper()
        if _SQL.match(before) and _VALUE_FOLLOWS.search(before) and not is_text:
            is_asked = bool(_FROM_OUTSIDE.search(request))
            reason = f"the SQL is put together from {names[:40]}, which may contain SQL"
            yield Finding(False if is_asked else None, -MAX_SHIFT if is_asked else -1.5, reason)
            return


def _unsafe_call(call: ast.Call, request: str) -> Iterator[Finding]:
    """Find calls that trust outside input, such as `eval(text)`, and weak secrets, as by `md5`.

    The request may permit them by naming them.
    """
    if not isinstance(call.func, ast.Name) and not (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    ):
        return
    name = text_of(call.func)
    options = {each.arg: text_of(each.value) for each in call.keywords}
    first = call.args[0] if call.args else None
    if name == "eval" and first is not None and not isinstance(first, ast.Constant):
        if "eval" not in request:
            yield Finding(None, -1.2, "eval() runs whatever is typed in")
    elif name == "os.system" and isinstance(first, ast.JoinedStr | ast.BinOp):
        yield Finding(None, -1.2, "os.system() runs a text that was put together")
    elif name.startswith("subprocess.") and options.get("shell") == "True":
        if isinstance(first, ast.JoinedStr | ast.BinOp):
            yield Finding(None, -1.2, "a shell runs a text that was put together")
    elif name == "yaml.load" and len(call.args) == 1 and "Loader" not in options:
        yield Finding(None, -1.5, "yaml.load() needs a loader")
    elif options.get("verify") == "False" and "verify" not in request:
        yield Finding(None, -1.2, "certificates are not checked")
    elif _SECRET.search(request):
        if name in ("hashlib.md5", "hashlib.sha1"):
            yield Finding(None, -2.0, f"{name} is too weak for secrets")
        elif name in ("random.choice", "random.choices", "random.randint", "random.sample"):
            yield Finding(None, -1.5, f"{name} can be predicted; secrets need the module secrets")


def _wrong_zone(call: ast.Call, request: str) -> Iterator[Finding]:
    """Find `.replace(tzinfo=..)` where a conversion is needed.

    Certain if a parsed text has an offset.
    """
    called = call_of(call)
    if called is None or called[1] != "replace" or called[0] is None:
        return
    if not any(each.arg == "tzinfo" for each in call.keywords) or len(call.keywords) > 1:
        return
    if text_of(call.keywords[0].value) == "None":
        return
    inner = called[0]
    texts = [
        each.value
        for each in (inner.args if isinstance(inner, ast.Call) else ())
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    if any(_HAS_OFFSET.search(text) for text in texts):
        yield Finding(False, -MAX_SHIFT, "replace(tzinfo=) drops the offset of the time")
    elif _UTC.search(request) and _HAS_OFFSET.search(" ".join(request.split('"')[1:2])):
        yield Finding(None, -1.5, "replace(tzinfo=) changes no time to another zone")


def _letters_stripped(call: ast.Call) -> Iterator[Finding]:
    """Find `lstrip("prefix")`, which removes letters and not a prefix."""
    called = call_of(call)
    if called is None or called[1] not in ("lstrip", "rstrip") or len(call.args) != 1:
        return
    argument = call.args[0]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        letters = [sign for sign in argument.value if sign.isalpha()]
        if 3 <= len(letters) <= 12 and "abc" not in argument.value and "xyz" not in argument.value:
            reason = f".{called[1]}({argument.value!r}) removes letters, not a prefix or suffix"
            yield Finding(None, -2.0, reason)
