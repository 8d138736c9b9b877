"""The layout of `pinocchio --help`: commands in groups, each group with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import typer

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Run: start the proxy, and look at what it did": (
        *("serve", "init", "check", "doctor", "top", "explain"),
    ),
    "Review: decide on held replies, and say what was right": ("reviews", "feedback", "mcp"),
    "Policies: test a policy, replay it on traffic, prove its threshold": (
        *("test", "replay", "promote", "certify", "schema", "hook"),
    ),
    "Operate: keys and the store": (*("keys", "export", "migrate", "audit"),),
    "Calibrators: score replies, judge the scores, correct them": (
        *("advise", "score", "evaluate", "recalibrate", "tune", "train", "train-llm", "drift"),
    ),
    "Research: studies of the paper, for those who build calibrators": (
        *("collect", "elicit", "labels", "filter", "pairs", "survey", "study", "card"),
    ),
}

LAB: Final = frozenset(
    (
        *("advise", "card", "collect", "elicit", "evaluate", "filter", "labels", "pairs"),
        *("study", "survey", "train", "train-llm"),
    )
)
"""The commands that need `calibrator/lab`, which an installation may leave out."""


def group_commands(cli: typer.Typer) -> Any:
    """Return the command of an app, with its commands grouped in the order of `GROUPS`.

    A command that no group names comes first, under typer's own title.
    """
    import typer.main

    _hide_type_of_flags()
    command: Any = typer.main.get_command(cli)
    places = {name: group for group, names in GROUPS.items() for name in names}
    order = list(places)
    known = sorted(set(command.commands) & set(places), key=order.index)
    others = [name for name in command.commands if name not in places]
    command.commands = {name: command.commands[name] for name in [*others, *known]}
    for name in known:
        command.commands[name].rich_help_panel = places[name]
    return command


def _hide_type_of_flags() -> None:
    """Remove `<bool>` behind flags, which take no value, from help.

    Typer has no option for this.
    """
    from typer.core import TyperOption

    option: Any = TyperOption
    shown = getattr(option, "display_type_rich", None)
    if shown is not None:
        option.display_type_rich = lambda self, ctx: None if self.is_flag else shown(self, ctx)
