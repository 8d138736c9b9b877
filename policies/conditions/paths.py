"""The paths that a tool call names, and whether they lead out of the project.

    leaves("src/../../other", "/srv/app")    # True
    leaves("/srv/app/src/a.py", "/srv/app")  # False

Links are not followed, because a policy sees only a file's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from policies.conditions.commands import Command, basename, commands_in
from policies.conditions.facts import PATCH
from policies.conditions.globs import glob_test

_PATCHED: Final = re.compile(  # agents ignore blanks before it
    r"^[ \t]*\*\*\* (?:(?:Add|Update|Delete) File|Move to):(.+)$", re.MULTILINE
)
_ALWAYS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_MAY_BE_PARENT: Final = re.compile(r"\.\.?[*?\[]|\.\.\Z")  # `.*` matches `..` in many shells
_HOME_OR_IFS: Final = re.compile(r"\$\{?(?:HOME|IFS)\b")  # `a$IFS..` is two words
_COMMAND_LIKE: Final = re.compile(r"[\s;|&<>\"'`]")


@dataclass(frozen=True, slots=True)
class PathsTest:
    """A test that a path in a value is outside the project (`is_outside`), or matches a glob."""

    globs: tuple[str, ...] = ()
    is_outside: bool = False

    def holds(self, value: Any, project: str | None) -> bool | None:
        """Return whether any path in a value, which is a path, a shell command or a patch, matches.

        `project` is the project's folder, None if unknown. A glob is compared with the whole path
        and with its last name. Return None for a command that cannot be read.
        """
        paths = paths_in(value)
        if paths is None:
            return None
        if self.is_outside:
            return any(leaves(path, project) for path in paths)
        matches = [glob_test(glob) for glob in self.globs]
        spelled = {name for path in paths for name in (path, basename(path))}
        return any(match(name) for match in matches for name in spelled)


def paths_in(value: Any) -> list[str] | None:
    """Return the possible paths in a path, a shell command (text or list of words) or a patch.

    A text without spaces and quotes is a path itself. Return [] for other types and an empty text,
    None for a command that cannot be read.
    """
    if isinstance(value, str) and PATCH in value[:200]:
        return [path.strip() for path in _PATCHED.findall(value)]
    if isinstance(value, str) and not _COMMAND_LIKE.search(value):
        return [value] if value else []
    if not isinstance(value, str | list):
        return []
    commands = commands_in(value)
    return None if commands is None else list(_paths_of(commands))


def _paths_of(commands: Iterable[Command]) -> Iterator[str]:
    """Yield the possible paths of commands: files of redirections, and words but not plain options.

    Of words such as `--out=a/b`, `host:a/b` or `-I/usr`, the part that may be a path also comes.
    """
    for command in commands:
        yield from command.files
        if command.words[:1] == ["cd"] and all(each.startswith("-") for each in command.words[1:]):
            yield "~"  # the home folder, or after `-` the one before, which is unknown
        for word in command.words:
            if word.startswith("-") and "=" not in word and "/" not in word:
                continue
            yield word
            for mark in "=:":
                if mark in word and "//" not in word:
                    yield word.rpartition(mark)[2]
            if word.startswith("-") and "/" in word:
                yield word[word.index("/") :]  # -I/usr/include


def leaves(path: str, project: str | None) -> bool:
    """Return whether a path leads out of the folder `project`, or whether its target is unknown.

    Unknown are `~`, `$HOME`, `$IFS` and other variables before a `/` or `..`. Without a `project`
    every absolute path leads out. A relative path leads out where its `..` lead above its start.
    URLs and `/dev/null` do not.
    """
    if path in _ALWAYS or "://" in path:
        return False  # an address is not a path; rules on the network look at it
    after = path.partition("$")[2]
    if path.startswith("~") or "/" in after or ".." in after or _HOME_OR_IFS.search(path):
        return True
    if not path.startswith("/"):
        return _depth(path) < 0
    if project is None:
        return True
    root = project.rstrip("/")
    is_below = path == root or path.startswith(f"{root}/")
    return not is_below or _depth(path[len(root) :]) < 0


def _depth(path: str) -> int:
    """Return the lowest depth on the way along a path, negative where it leads above its start.

    A pattern such as `.*` or `.?` counts as `..`, which it matches in many shells.
    """
    depth = lowest = 0
    for name in path.split("/"):
        depth += -1 if _MAY_BE_PARENT.match(name) else 1 if name not in ("", ".") else 0
        lowest = min(lowest, depth)
    return lowest
