"""The commands that serve: `serve`, `check` and `reviews`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from proxy.errors import ExitStatus, StartupError, StoreError

if TYPE_CHECKING:
    from proxy.store.held_replies import HeldReply

cli = typer.Typer(no_args_is_help=True)
reviews = typer.Typer(no_args_is_help=True, help="List, read, release and reject held replies.")
cli.add_typer(reviews, name="reviews")

T = TypeVar("T")
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A proxy.yaml; ./proxy.yaml if there is one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def stop(status: ExitStatus, message: str) -> typer.Exit:
    """Says why on stderr; raise what it returns."""
    typer.echo(message, err=True)
    if status is not ExitStatus.OK:
        typer.echo(f"pinocchio: {status.name.lower()} (exit status {status.value})", err=True)
    return typer.Exit(status)


@contextmanager
def errors_told() -> Iterator[None]:
    """What start-up and the store raise ends the process with its sentence and status."""
    try:
        yield
    except StartupError as error:
        raise stop(error.status, str(error)) from error
    except StoreError as error:
        raise stop(ExitStatus.STORE_UNAVAILABLE, error.message) from error


@cli.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 8000,
    policy: Annotated[
        str | None, typer.Option(help="A pack by name, in place of the configured policy.")
    ] = None,
) -> None:
    """Run the proxy."""
    from proxy.server import serve as run

    with errors_told():
        run(config, host, port, policy, typer.echo)


@cli.command()
def check(
    config: ConfigOption = None,
    policy: Annotated[
        str | None, typer.Option(help="A pack or a policy file to check instead.")
    ] = None,
) -> None:
    """Check a configuration and its policy: exit status 0, or 2 with file:line sentences."""
    from policies import lint, stream_report
    from proxy.server import check_setup, load_setup

    try:
        setup = load_setup(config, policy)
        check_setup(setup, "127.0.0.1")
    except StartupError as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    typer.echo(f"{setup.path or 'built-in configuration'}: ok")
    rules = f"{len(setup.policy.rules)} rules" if len(setup.policy.rules) != 1 else "1 rule"
    typer.echo(
        f"policy {setup.policy.name}@{setup.policy.digest}: ok, {setup.policy.mode}, {rules}"
    )
    for line in stream_report(setup.policy):
        typer.echo(f"  {line}")
    for name, team in setup.config.teams.items():
        policy_of_team = setup.book.load(team.policy)
        typer.echo(f"team {name}: policy {policy_of_team.name}@{policy_of_team.digest}")
    for each in setup.book:
        for warning in lint(each):
            typer.echo(f"  warning: {warning}")


@reviews.command("list")
def list_reviews(
    config: ConfigOption = None,
    state: Annotated[str, typer.Option(help="held, released, rejected or expired.")] = "held",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Held replies, the surest errors first."""
    from proxy.store.held_replies import STATES, Store

    if state not in STATES:
        raise stop(
            ExitStatus.UNUSABLE_INPUT, f"--state must be one of {', '.join(STATES)}, not {state!r}"
        )

    async def read(store: Store) -> list[HeldReply]:
        return list(await store.list(state, limit))

    for held in _with_store(config, read):
        if as_json:
            typer.echo(json.dumps(_facts(held)))
        else:
            sure = "no score" if held.confidence is None else f"{held.confidence:.4f}"
            age = _minutes(time.time() - held.created_at)
            typer.echo(
                f"{held.id}  {sure}  {held.queue}  {held.model}  {age}  {_end(held)}"
                f"  {held.question[:60]!r}"
            )


@reviews.command("show")
def show_review(id: str, config: ConfigOption = None) -> None:
    """One held reply, with what upstream answered."""
    from proxy.store.held_replies import Store

    async def read(store: Store) -> HeldReply | None:
        return await store.get(id)

    held = _with_store(config, read)
    if held is None:
        raise stop(ExitStatus.FAILED, f"there is no held reply {id}")
    typer.echo(
        json.dumps({**_facts(held), "reply": json.loads(held.reply)}, indent=2, ensure_ascii=False)
    )


@reviews.command("release")
def release(id: str, config: ConfigOption = None) -> None:
    """Let the client fetch the reply."""
    _decide(id, config, "released")


@reviews.command("reject")
def reject(id: str, config: ConfigOption = None) -> None:
    """Withhold the reply for good."""
    _decide(id, config, "rejected")


def _decide(id: str, config: Path | None, state: str) -> None:
    from proxy.store.held_replies import Store

    async def change(store: Store) -> tuple[bool, HeldReply | None]:
        return await store.decide(id, state), await store.get(id)

    is_done, held = _with_store(config, change)
    if held is None:
        raise stop(ExitStatus.FAILED, f"there is no held reply {id}")
    if not is_done:
        raise stop(ExitStatus.FAILED, f"{id} is {held.state} already")
    typer.echo(f"{id} is {state}")


def _with_store(config: Path | None, work: Callable[..., Awaitable[T]]) -> T:
    """Opens the configured store for one piece of work; ends the process when it cannot."""
    from proxy.server import load_store_config
    from proxy.store.held_replies import Store

    async def run(url: str) -> T:
        store = Store(url)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.aclose()

    with errors_told():
        return asyncio.run(run(load_store_config(config).store))


def _facts(held: HeldReply) -> dict[str, object]:
    names = ("id", "state", "queue", "model", "policy", "confidence", "calibrator", "question")
    times = ("created_at", "expires_at", "decided_at", "taken_at")
    facts: dict[str, object] = {name: getattr(held, name) for name in names + times}
    calls = json.loads(held.calls) if held.calls else []
    return facts | {"on_expiry": held.on_expiry, "standing": held.standing, "calls": calls}


def _end(held: HeldReply) -> str:
    """When a reply expires and what comes of it then, or what has."""
    if held.state == "held":
        left_s = max(0.0, held.expires_at - time.time())
        return f"{held.on_expiry} in {left_s / 60:.0f} min"
    return held.state if held.state == held.standing else f"{held.state}, now {held.standing}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min ago"
