"""Who may import whom (design, section 2), and how large a piece of code may be (section 10).

The rules are read from the syntax tree of every module, imports inside functions included.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("pinocchio", "proxy", "policies", "calibrator")

# Our packages that a package may import; `root` is the package itself, not its modules.
MAY_IMPORT = {
    "pinocchio": {"pinocchio": "all", "proxy": "all", "calibrator": "root"},
    "proxy": {"proxy": "all", "policies": "root", "calibrator": "root"},
    "policies": {"policies": "all"},
    "calibrator": {"calibrator": "all"},
}

MODEL_AND_TRAINING = [
    f"calibrator.{name}"
    for name in (
        "averaging",
        "devices",
        "encoder_training",
        "finishing",
        "llm.*",
        "piece_vectors",
        "torch_encoder",
        "tower_training",
    )
]

# Libraries that only the named modules may import.
ONLY_IN = {
    "torch": MODEL_AND_TRAINING,
    "transformers": MODEL_AND_TRAINING,
    "peft": MODEL_AND_TRAINING,
    "accelerate": MODEL_AND_TRAINING,
    "PIL": MODEL_AND_TRAINING,
    "onnx": ["calibrator.onnx_encoder"],
    "onnxruntime": ["calibrator.onnx_encoder"],
    "ray": ["calibrator.ray_scoring", "proxy.ray_serve"],
    "pyarrow": ["calibrator.ray_scoring"],
    "litellm": ["proxy.translate*"],
    "websockets": ["proxy.realtime", "proxy.websocket_relay", "proxy.websocket_server"],
    "aiohttp": ["proxy.aiohttp_relay"],
    "sqlalchemy": ["proxy.store.*"],
    "alembic": ["proxy.store.*"],
    "psycopg": ["proxy.store.*"],
    "fastapi": ["proxy.own_api", "proxy.desk.*"],
    "starlette": ["proxy.own_api", "proxy.desk.*", "proxy.console*"],
    "jinja2": ["proxy.console.*"],
    "markdown_it": ["proxy.console.*"],
    "nh3": ["proxy.console.*"],
}

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}


@dataclass(frozen=True)
class Module:
    name: str  # proxy.relay; a package's __init__ has the package's name
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[str]:
        """The full name of every module, or name in a module, that is imported somewhere here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}:{node.lineno}: a relative import"
                assert node.module is not None
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Module]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return found


MODULES = modules()
NAMES = {module.name for module in MODULES}


def test_there_is_something_to_look_at() -> None:
    """The rules below are checked on all four packages."""
    assert {module.package for module in MODULES} == set(PACKAGES)
    assert "proxy.relay" in NAMES
    assert len(NAMES) > 50


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_know_each_other_only_as_the_design_says(package: str) -> None:
    """Calibrator and policies know nothing of each other, and outsiders use the package root."""
    broken = []
    for module in (module for module in MODULES if module.package == package):
        for imported in module.imports():
            target = imported.partition(".")[0]
            if target not in PACKAGES:
                continue
            allowed = MAY_IMPORT[package].get(target)
            is_deep = imported in NAMES - {target} or imported.rpartition(".")[0] in NAMES - {
                target
            }
            if allowed is None or (allowed == "root" and is_deep):
                broken.append(f"{module.name} imports {imported}")
    assert broken == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_heavy_libraries_have_one_seam_each(library: str) -> None:
    """Each of them is imported by the modules that stand for it, and by no other."""
    users = {
        module.name
        for module in MODULES
        if any(imported.partition(".")[0] == library for imported in module.imports())
    }
    allowed = ONLY_IN[library]
    assert {user for user in users if not any(fnmatch(user, glob) for glob in allowed)} == set()


def test_policies_need_only_yaml() -> None:
    """The policy engine can be used, and tested, with nothing else installed."""
    libraries = {
        imported.partition(".")[0]
        for module in MODULES
        if module.package == "policies"
        for imported in module.imports()
    }
    assert libraries - sys.stdlib_module_names - {"policies"} == {"yaml"}


@pytest.mark.parametrize("module", ["calibrator", "proxy.app", "pinocchio", "policies"])
def test_what_servers_and_scripts_import_first_is_light(module: str) -> None:
    """A fresh interpreter imports it without torch, transformers or litellm."""
    code = (
        f"import sys, {module}\n"
        "heavy = {'torch', 'transformers', 'onnxruntime', 'litellm'}\n"
        "assert not heavy & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_and_functions_fit_on_a_few_screens() -> None:
    """500 lines for a module and 60 for a function are the most."""
    too_long = [
        f"{module.name} has {size} lines"
        for module in MODULES
        if (size := len(module.path.read_text(encoding="utf-8").splitlines())) > MAX_MODULE_LINES
    ]
    too_long += [
        f"{module.name}.{node.name} has {lines_of(node)} lines"
        for module in MODULES
        for node in functions(module.tree)
        if lines_of(node) > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_modules_are_named_after_what_they_do() -> None:
    """No module is called utils, helpers, common, manager or misc."""
    assert [name for name in NAMES if VAGUE_NAMES & set(name.split("."))] == []


def test_every_module_says_what_it_is_for() -> None:
    """Each module that has code begins with a docstring."""
    silent = [m.name for m in MODULES if m.tree.body and not ast.get_docstring(m.tree)]
    assert silent == []


def test_exceptions_end_in_error() -> None:
    """A class that is raised can be told by its name."""
    misnamed = [
        f"{module.name}.{node.name}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith(("Error", "Exception"))
                for base in node.bases)
        and not node.name.endswith("Error")
    ]  # fmt: skip
    assert misnamed == []
