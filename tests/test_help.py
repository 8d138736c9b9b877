"""`pinocchio --help` as a new user reads it."""

from __future__ import annotations

import re

import pytest

from proxy.commands.app import CALIBRATORS, GROUPS
from tests.running.live_proxy import run_cli


def help_of(*arguments: str) -> str:
    done = run_cli(*arguments, "--help", COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def panels(text: str) -> dict[str, list[str]]:
    """Return the commands under each title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (.+?) ─*╮", line):
            found[title[1]] = []
        elif found and (name := re.match(r"│ ([a-z-]+) ", line)):
            found[list(found)[-1]].append(name[1])
    return found


def test_commands_stand_in_groups_with_a_sentence() -> None:
    """Every command is listed in its group, and the groups are in order of need."""
    found = panels(help_of())
    assert list(found) == ["Options", *GROUPS]
    for group, names in GROUPS.items():
        lab = ["lab"] if group == CALIBRATORS else []
        assert sorted(found[group]) == sorted([*names, *lab])


def test_researchers_commands_stand_in_a_group_of_their_own() -> None:
    """`lab --help` lists the researchers' commands; each works without `lab` too."""
    (names,) = (each for title, each in panels(help_of("lab")).items() if title == "Commands")
    assert {"evaluate", "train", "advise", "study", "collect", "pairs", "filter"} <= {*names}
    for name in names:
        alone, within = help_of(name), help_of("lab", name)
        assert f"Usage: pinocchio {name} " in alone
        assert within.replace(f"pinocchio lab {name}", f"pinocchio {name}").split() == alone.split()


def test_a_command_that_is_nowhere_is_refused() -> None:
    """A mistyped command is refused by its name, with and without `lab`."""
    for words in (("evaluat",), ("lab", "evaluat")):
        done = run_cli(*words)
        assert done.returncode == 2
        assert "No such command 'evaluat'" in done.stderr


@pytest.mark.parametrize(
    "command",
    [(), ("tune",), ("train",), ("evaluate",), ("recalibrate",), ("promote",), ("replay",)],
)
def test_flags_show_no_type_and_no_double_negation(command: tuple[str, ...]) -> None:
    """Flags show no type, and flags that are off have no `--no-` form."""
    text = help_of(*command)
    assert "<bool>" not in text
    assert not re.search(
        r"--no-(dry-run|from-store|held-only|rollback|history|text-only|finish-now)", text
    )


def test_options_with_values_still_show_their_type() -> None:
    """Options with a value show its type."""
    assert re.search(r"--epochs +<int range>", help_of("train"))
