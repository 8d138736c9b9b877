"""Rules on imports (design, section 2) and on the size of modules and functions (section 10).

The rules are read from the syntax tree of every module, including imports inside functions.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("pinocchio", "proxy", "policies", "calibrator")

# Our packages that a package may import; `root` is the package itself, not its modules.
MAY_IMPORT = {
    "pinocchio": {"pinocchio": "all", "proxy": "all", "calibrator": "root", "policies": "root"},
    "proxy": {"proxy": "all", "policies": "root", "calibrator": "root"},
    "policies": {"policies": "all"},
    "calibrator": {"calibrator": "all"},
}

# The lab collects answers through a proxy's upstreams.
ON_THE_PROXY = (
    "calibrator.lab.collecting",
    "calibrator.lab.commands.collect",
    "calibrator.lab.commands.elicit",
)

MODEL_AND_TRAINING = [
    "calibrator.checkpoints.devices",
    "calibrator.lab.training.fits.evidence.*",
    "calibrator.llm.*",
    "calibrator.lab.training.llm.*",
    "calibrator.lab.studies.elicitations",
    "calibrator.lab.training.stages.tower",
    "calibrator.lab.training.stages.knowledge",
    "calibrator.lab.training.stages.piece_vectors",
    "calibrator.lab.training.stages.tower",
]

# Libraries that only the named modules may import.
ONLY_IN = {
    "torch": MODEL_AND_TRAINING,
    "transformers": MODEL_AND_TRAINING,
    "peft": MODEL_AND_TRAINING,
    "accelerate": MODEL_AND_TRAINING,
    "PIL": MODEL_AND_TRAINING,
    "ray": ["calibrator.lab.cluster.ray_scoring", "proxy.scoring.server.ray_serve"],
    "pyarrow": ["calibrator.lab.cluster.ray_scoring"],
    "litellm": ["proxy.upstreams.translation.*", "proxy.scoring.engines.decisions"],
    "websockets": [
        "proxy.optional.websockets.websockets",
        "proxy.optional.websockets.websocket_session",
        "proxy.http.listener.websocket_protocol",
    ],
    "pyflakes": ["calibrator.readers.evidence.computed.code.python"],
    "jwt": ["proxy.desk.access.issuer"],
    "mcp": ["proxy.optional.mcp.server"],
    "opentelemetry": ["proxy.observe.otel"],
    "aiohttp": [],
    "hatchling": ["calibrator.kernel.hatch_hook"],
    "sqlalchemy": ["proxy.store.*"],
    "alembic": ["proxy.store.*"],
    "psycopg": ["proxy.store.*"],
    "fastapi": [
        "proxy.routes.results_api",
        "proxy.http.listener.fastapi_errors",
        "proxy.desk.*",
        "proxy.optional.chat.link_pages",
    ],
    "starlette": [
        "proxy.routes.results_api",
        "proxy.http.listener.fastapi_errors",
        "proxy.desk.*",
        "proxy.optional.chat.link_pages",
    ],
    "jinja2": ["proxy.desk.console.*"],
    "markdown_it": ["proxy.desk.console.*"],
    "nh3": ["proxy.desk.console.*"],
}

# The rooms of its own package that a room may import; they are listed before it. A room is a folder
# with its subfolders, or a module at the root of a package.
ROOMS: dict[str, set[str]] = {
    "policies.binomial": set(),
    "policies.counting": set(),
    "policies.errors": set(),
    "policies.reading": {"errors"},
    "policies.conditions": {"binomial", "errors", "reading"},
    "policies.certifying": {"binomial", "conditions"},
    "policies.deciding": {"conditions", "errors", "reading"},
    "policies.trying": {
        "binomial",
        "certifying",
        "conditions",
        "counting",
        "deciding",
        "errors",
        "reading",
    },
    "calibrator.errors": set(),
    "calibrator.metrics": set(),
    "calibrator.kernel": set(),
    "calibrator.scorer": set(),
    "calibrator.batching": {"errors", "scorer"},
    "calibrator.text": {"errors", "kernel", "scorer"},
    "calibrator.rows": {"errors", "metrics", "scorer", "text"},
    "calibrator.recalibration": {"errors", "metrics", "rows", "scorer"},
    "calibrator.checkpoints": {"errors", "recalibration", "text"},
    "calibrator.features": {"errors", "kernel", "recalibration", "scorer", "text"},
    "calibrator.llm": {"checkpoints", "errors", "scorer", "text"},
    "calibrator.readers": {"errors", "features", "kernel", "recalibration", "scorer", "text"},
    "calibrator.embedded": {
        "checkpoints",
        "errors",
        "features",
        "kernel",
        "readers",
        "recalibration",
        "scorer",
        "text",
    },
    "calibrator.loading": {
        "checkpoints",
        "embedded",
        "errors",
        "llm",
        "readers",
        "recalibration",
        "scorer",
    },
    "calibrator.lab.cluster": {
        "checkpoints",
        "errors",
        "loading",
        "recalibration",
        "rows",
        "scorer",
    },
    "calibrator.pinocchio": {"errors", "llm", "loading", "readers", "scorer", "text"},
    "calibrator.tuning": {
        "checkpoints",
        "embedded",
        "errors",
        "features",
        "loading",
        "metrics",
        "recalibration",
        "rows",
        "scorer",
    },
    "calibrator.commands": {
        "errors",
        "lab.cluster",
        "loading",
        "metrics",
        "readers",
        "recalibration",
        "rows",
        "scorer",
    },
    "calibrator.lab.data": {"errors", "features", "metrics", "readers", "rows", "scorer", "text"},
    "calibrator.lab.training": {
        "checkpoints",
        "embedded",
        "errors",
        "features",
        "lab.data",
        "llm",
        "metrics",
        "readers",
        "recalibration",
        "rows",
        "scorer",
        "text",
    },
    "calibrator.lab.judging": {
        "checkpoints",
        "errors",
        "lab.data",
        "metrics",
        "readers",
        "recalibration",
        "rows",
        "scorer",
        "text",
    },
    "calibrator.lab.studies": {
        "checkpoints",
        "embedded",
        "errors",
        "features",
        "lab.data",
        "lab.judging",
        "lab.training",
        "llm",
        "loading",
        "metrics",
        "readers",
        "recalibration",
        "rows",
        "scorer",
        "text",
    },
    "calibrator.lab.reporting": {"errors", "lab.judging", "lab.studies", "metrics", "rows"},
    "calibrator.lab.paper": {
        "errors",
        "lab.data",
        "lab.judging",
        "lab.reporting",
        "lab.studies",
        "metrics",
        "recalibration",
        "rows",
        "scorer",
    },
    "calibrator.lab.collecting": {"lab.data", "lab.judging"},
    "calibrator.lab.commands": {
        "checkpoints",
        "commands",
        "embedded",
        "errors",
        "lab.collecting",
        "lab.data",
        "lab.judging",
        "lab.paper",
        "lab.reporting",
        "lab.studies",
        "lab.training",
        "llm",
        "loading",
        "metrics",
        "readers",
        "recalibration",
        "rows",
        "scorer",
        "text",
    },
    "calibrator.lab": {"lab.commands"},
    "proxy.errors": set(),
    "proxy.http": {"errors"},
    "proxy.formats": {"errors", "http"},
    "proxy.store": {"errors", "http"},
    "proxy.config": {"errors", "http", "store"},
    "proxy.upstreams": {"config", "errors", "formats", "http", "store"},
    "proxy.gate": {"errors", "http"},
    "proxy.learning": {"config", "errors", "formats", "http", "store", "upstreams"},
    "proxy.scoring": {"config", "errors", "formats", "gate", "http", "upstreams"},
    "proxy.exchange": {"errors", "formats", "gate", "http", "scoring", "store"},
    "proxy.optional.websockets": {
        "config",
        "errors",
        "exchange",
        "gate",
        "http",
        "scoring",
        "store",
        "upstreams",
    },
    "proxy.observe": {"config", "errors", "exchange", "http", "scoring"},
    "proxy.holds": {
        "config",
        "errors",
        "exchange",
        "formats",
        "gate",
        "http",
        "observe",
        "scoring",
        "store",
    },
    "proxy.completions": {
        "config",
        "errors",
        "exchange",
        "formats",
        "gate",
        "holds",
        "http",
        "learning",
        "scoring",
        "store",
        "upstreams",
    },
    "proxy.optional.mcp": {"scoring"},
    "proxy.optional.scores": {"config", "observe"},
    "proxy.routes": {
        "completions",
        "config",
        "errors",
        "formats",
        "gate",
        "holds",
        "http",
        "learning",
        "store",
        "upstreams",
    },
    "proxy.generations": {
        "completions",
        "config",
        "errors",
        "gate",
        "holds",
        "http",
        "learning",
        "observe",
        "optional.websockets",
        "routes",
        "scoring",
        "store",
        "upstreams",
    },
    "proxy.desk": {
        "config",
        "errors",
        "formats",
        "gate",
        "generations",
        "holds",
        "http",
        "learning",
        "observe",
        "store",
    },
    "proxy.optional.guardrails": {
        "completions",
        "config",
        "errors",
        "exchange",
        "formats",
        "gate",
        "generations",
        "holds",
        "http",
        "observe",
        "scoring",
    },
    "proxy.optional.chat": {"config", "desk", "errors", "formats", "http", "store"},
    "proxy.optional": {
        "config",
        "desk",
        "errors",
        "generations",
        "http",
        "observe",
        "optional.chat",
        "optional.guardrails",
        "optional.scores",
        "optional.websockets",
    },
    "proxy.app": {
        "config",
        "desk",
        "errors",
        "exchange",
        "gate",
        "generations",
        "holds",
        "http",
        "learning",
        "observe",
        "optional",
        "optional.guardrails",
        "routes",
        "scoring",
        "store",
    },
    "proxy.startup": {
        "app",
        "config",
        "desk",
        "errors",
        "gate",
        "generations",
        "http",
        "optional",
        "scoring",
        "store",
        "upstreams",
    },
    "proxy.commands": {
        "config",
        "desk",
        "errors",
        "formats",
        "gate",
        "http",
        "learning",
        "optional.mcp",
        "optional.scores",
        "scoring",
        "startup",
        "store",
        "upstreams",
    },
    "pinocchio.options": set(),
    "pinocchio.calls": set(),
    "pinocchio.desk": set(),
    "pinocchio.packages": set(),
    "pinocchio.commands": {"packages"},
    "pinocchio.doubt": {"packages"},
    "pinocchio.langchain": {"calls", "desk", "doubt"},
    "pinocchio.litellm": set(),
    "pinocchio.openai_agents": {"calls", "desk", "doubt"},
    "pinocchio.pydantic_ai": {"calls", "desk", "doubt"},
    "pinocchio.__main__": {"commands", "options", "packages"},
}

MAX_ENTRIES = 15
OPTIONAL_PARTS = "proxy.optional.parts"
OPTIONAL = tuple(
    f"proxy.optional.{name}" for name in ("chat", "guardrails", "mcp", "scores", "websockets")
)
THEMES = {
    "proxy/actions",  # what a policy does to a reply
    "proxy/streams",
    "calibrator/lab/judging/baselines/polygraph",
    "calibrator/lab/judging/sensitivity/unseen",
}
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}


@dataclass(frozen=True)
class Module:
    name: str  # proxy.upstreams.router; a package's __init__ has the package's name
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def imports(self) -> list[str]:
        """The full names of all modules, and of names in modules, that the module imports."""
        found = []
        for node in statements(self.tree):
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}:{node.lineno}: a relative import"
                assert node.module is not None
                found += [f"{node.module}.{alias.name}" for alias in node.names]
        return found


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the tree and all statements in it.

    Walking through expressions, too, would take ten times as long.
    """
    left = [tree]
    while left:
        yield (node := left.pop())
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())


@cache
def modules() -> list[Module]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return found


@cache
def names() -> set[str]:
    return {module.name for module in modules()}


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """Clear the cached trees: a million live nodes slow each later collection by a second."""
    yield
    for cached in (modules, names, by_name, in_rooms):
        cached.cache_clear()


def test_there_is_something_to_look_at() -> None:
    """All four packages are found, with more than 50 modules."""
    assert {module.package for module in modules()} == set(PACKAGES)
    assert "proxy.upstreams.router" in names()
    assert len(names()) > 50


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_know_each_other_only_as_the_design_says(package: str) -> None:
    """A package imports another one, or only its root, as the design says."""
    broken = []
    for module in (module for module in modules() if module.package == package):
        for imported in module.imports:
            target = imported.partition(".")[0]
            if target not in PACKAGES:
                continue
            allowed = MAY_IMPORT[package].get(target)
            if module.name.startswith(ON_THE_PROXY):
                allowed = "all" if target in ("proxy", "calibrator") else "root"
            doors = {target, "calibrator.lab"} if package == "pinocchio" else {target}
            is_deep = imported in names() - doors or imported.rpartition(".")[0] in names() - doors
            if allowed is None or (allowed == "root" and is_deep):
                broken.append(f"{module.name} imports {imported}")
    assert broken == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_heavy_libraries_have_one_seam_each(library: str) -> None:
    """Only the listed modules import a heavy library."""
    users = {
        module.name
        for module in modules()
        if any(imported.partition(".")[0] == library for imported in module.imports)
    }
    allowed = ONLY_IN[library]
    assert {user for user in users if not any(fnmatch(user, glob) for glob in allowed)} == set()


def test_policies_need_only_yaml() -> None:
    """The policy engine imports only yaml and the standard library."""
    libraries = {
        imported.partition(".")[0]
        for module in modules()
        if module.package == "policies"
        for imported in module.imports
    }
    assert libraries - sys.stdlib_module_names - {"policies"} == {"yaml"}


@pytest.mark.parametrize("module", ["calibrator", "proxy.app", "pinocchio", "policies"])
def test_what_servers_and_scripts_import_first_is_light(module: str) -> None:
    """A fresh interpreter imports the package without torch, transformers and litellm."""
    code = (
        f"import sys, {module}\n"
        "heavy = {'torch', 'transformers', 'litellm'}\n"
        "assert not heavy & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in statements(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_and_functions_fit_on_a_few_screens() -> None:
    """A module has at most 500 lines and a function at most 60."""
    too_long = [
        f"{module.name} has {size} lines"
        for module in modules()
        if (size := len(module.path.read_text(encoding="utf-8").splitlines())) > MAX_MODULE_LINES
    ]
    too_long += [
        f"{module.name}.{node.name} has {lines_of(node)} lines"
        for module in modules()
        for node in functions(module.tree)
        if lines_of(node) > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_modules_are_named_after_what_they_do() -> None:
    """No module is called utils, helpers, common, manager or misc."""
    assert [name for name in names() if VAGUE_NAMES & set(name.split("."))] == []


def test_every_module_says_what_it_is_for() -> None:
    """Each module that has code begins with a docstring."""
    silent = [m.name for m in modules() if m.tree.body and not ast.get_docstring(m.tree)]
    assert silent == []


def test_exceptions_end_in_error() -> None:
    """The name of an exception's class ends in Error."""
    misnamed = [
        f"{module.name}.{node.name}"
        for module in modules()
        for node in statements(module.tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith(("Error", "Exception"))
                for base in node.bases)
        and not node.name.endswith("Error")
    ]  # fmt: skip
    assert misnamed == []


def folder_of(module: Module) -> str:
    """Return the folder of a module; for `__init__.py` it is the module itself."""
    is_door = module.path.name == "__init__.py"
    return module.name if is_door else module.name.rpartition(".")[0]


def room_of(module: Module) -> str:
    """Return the room of a module; the lab and the optional parts are made of rooms."""
    folder = folder_of(module)
    parts = folder.split(".")
    if len(parts) == 1:
        return module.name
    is_nested = folder.startswith(("calibrator.lab.", "proxy.optional."))
    return ".".join(parts[: 3 if is_nested else 2])


@cache
def by_name() -> dict[str, Module]:
    return {module.name: module for module in modules()}


@cache
def in_rooms() -> list[Module]:
    return [m for m in modules() if "." in m.name and "migrations" not in m.path.parts]


def uses(module: Module) -> Iterator[tuple[Module, str]]:
    """Yield each module of ours that a module imports, and the name it takes if that is a door."""
    for imported in set(module.imports):
        parent, _, name = imported.rpartition(".")
        if imported in by_name():
            yield by_name()[imported], ""
        elif parent in by_name():
            yield by_name()[parent], name


def test_a_room_imports_only_rooms_below_it() -> None:
    """The table of rooms is exactly the graph of their imports."""
    found: dict[str, set[str]] = {}
    for module in in_rooms():
        room = room_of(module)
        package, _, _ = room.partition(".")
        others = {room_of(used) for used, _ in uses(module) if "." in used.name} - {room}
        ours = {other.partition(".")[2] for other in others if other.startswith(f"{package}.")}
        found.setdefault(room, set()).update(ours)
    assert found == ROOMS
    seen: set[str] = set()
    for room, below in ROOMS.items():
        package, _, _ = room.partition(".")
        above = {f"{package}.{name}" for name in below} - seen
        assert above == set(), f"{room} imports {above}, which stand after it"
        seen.add(room)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """No imports form a circle, including those inside functions and for types."""
    below = {m.name: {used.name for used, _ in uses(m) if "." in used.name} for m in in_rooms()}
    while leaves := {name for name, used in below.items() if not used & set(below)}:
        below = {name: used for name, used in below.items() if name not in leaves}
    assert below == {}


def test_rooms_are_entered_by_their_doors() -> None:
    """Other folders import only what a folder's `__init__.py` names in `__all__`."""
    taken: dict[str, set[str]] = {}
    for module in in_rooms():
        for used, name in uses(module):
            folder, mine = folder_of(used), folder_of(module)
            if "." in folder and mine != folder and not mine.startswith(f"{folder}."):
                what = name if used.name == folder else used.name.rpartition(".")[2]
                taken.setdefault(folder, set()).add(what)
    for folder in {folder_of(module) for module in in_rooms()} - set(PACKAGES):
        named = [
            ast.literal_eval(statement.value)
            for statement in by_name()[folder].tree.body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
        ]
        assert len(named) == 1, f"{folder} has no door"
        closed = taken.get(folder, set()) - set(named[0]) - {""}
        assert closed == set(), f"other folders import {closed} of {folder}"
        missing = {
            name
            for name in named[0]
            if f"{folder}.{name}" not in by_name() and not hasattr(import_module(folder), name)
        }
        assert missing == set(), f"{folder} offers {missing}, which nobody has"


def entries_of(folder: Path) -> list[Path]:
    """Return a folder's files and subfolders, without caches of Python and packages of Node."""
    kept = {"__pycache__", "node_modules"}
    return [path for path in folder.iterdir() if not kept & set(path.parts)]


def folders_of(top: str) -> list[Path]:
    """Return a folder at the root and all folders in it."""
    below = (ROOT / top).rglob("*")
    kept = {"__pycache__", "node_modules"}
    return [ROOT / top, *(path for path in below if path.is_dir() and not kept & set(path.parts))]


def test_folders_are_small() -> None:
    """A folder of the product has at most 15 entries, subfolders included."""
    sizes = {
        str(folder): len(entries_of(folder))
        for package in PACKAGES
        for folder in folders_of(package)[1:]
    }
    assert {folder: size for folder, size in sizes.items() if size > MAX_ENTRIES} == {}


@pytest.mark.parametrize(("package", "most"), {"proxy": 20, "calibrator": 18}.items())
def test_packages_have_few_rooms(package: str, most: int) -> None:
    """A package has few folders and modules at its top."""
    plain = {"__init__.py", "README.md", "py.typed"}
    found = sorted(path.name for path in entries_of(ROOT / package) if path.name not in plain)
    assert len(found) <= most, found


def test_folders_of_tests_and_scripts_are_small() -> None:
    """A folder of tests or scripts has at most 15 files."""
    sizes = {
        str(folder): sum(path.is_file() for path in entries_of(folder))
        for top in ("tests", "scripts")
        for folder in folders_of(top)
    }
    assert {folder: size for folder, size in sizes.items() if size > MAX_ENTRIES} == {}


def test_tests_mirror_the_packages() -> None:
    """A folder of tests is named like the folder under test or after a listed theme."""
    tops = ("proxy", "calibrator", "policies")
    mirrored = {str(path.relative_to(ROOT)) for top in tops for path in folders_of(top)}
    folders = [path for top in tops for path in folders_of(f"tests/{top}")]
    found = {
        str(folder.relative_to(ROOT / "tests")) for folder in folders if [*folder.glob("test_*.py")]
    }
    assert found - mirrored - THEMES == set()


def test_no_private_method_is_overridden_elsewhere() -> None:
    """No subclass in another module overrides a private method."""
    classes = {
        (module.name, node.name): {f.name for f in functions(node)}
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }
    overridden = []
    for module in modules():
        names = {name.rpartition(".")[2]: name.rpartition(".")[0] for name in module.imports}
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            for base in node.bases:
                name = base.id if isinstance(base, ast.Name) else ""
                theirs = classes.get((names.get(name, ""), name), set())
                both = {f.name for f in functions(node)} & theirs
                overridden += [
                    f"{module.name}.{node.name}.{method}"
                    for method in sorted(both)
                    if method.startswith("_") and not method.startswith("__")
                ]
    assert overridden == []


def place_of(module: Module) -> str:
    """Return the folder of a module; a module at the top of a package has its own place."""
    return room_of(module) if "." not in folder_of(module) else folder_of(module)


def test_no_folders_import_each_other_in_a_circle() -> None:
    """No folders import each other in a circle; a folder and its subfolder count as two."""
    below: dict[str, set[str]] = {}
    for module in in_rooms():
        places = {place_of(used) for used, _ in uses(module) if "." in used.name}
        below.setdefault(place_of(module), set()).update(places - {place_of(module)})
    while leaves := {place for place, used in below.items() if not used & set(below)}:
        below = {place: used for place, used in below.items() if place not in leaves}
    assert below == {}


LAB_IS_NAMED_IN = {
    "calibrator.commands.score",  # `--engine ray`
    "pinocchio.commands",  # adds the lab's commands, if they are there
}


def test_nothing_that_serves_imports_the_lab() -> None:
    """Only the listed modules import `calibrator/lab`: serving and tuning work without it."""
    users = {
        module.name
        for module in modules()
        if not module.name.startswith("calibrator.lab")
        and any(used.name.startswith("calibrator.lab") for used, _ in uses(module))
    }
    assert users == LAB_IS_NAMED_IN


def loaded_at_once(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules that are loaded with a module itself, not for types alone."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_optional_parts_are_loaded_when_they_are_needed() -> None:
    """Optional parts are imported by commands and by the module that makes them, not at import
    time.
    """
    users, early = set(), set()
    for module in modules():
        own = ".".join(folder_of(module).split(".")[:3])
        parts = {
            used.name
            for used, _ in uses(module)
            if used.name.startswith("proxy.optional.") and used.name != OPTIONAL_PARTS
        }
        if not {part for part in parts if not part.startswith(own)} or own in OPTIONAL:
            continue
        users.add(module.name)
        early |= {name for name in loaded_at_once(module.tree) if name.startswith(tuple(OPTIONAL))}
    allowed = ("proxy.commands.", "proxy.generations.generation", OPTIONAL_PARTS)
    assert {user for user in users if not user.startswith(allowed)} == set()
    assert early == set()
