"""The commands that serve: `serve`, `check` and `reviews`."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from policies import counted
from proxy.errors import DecidedError, ExitStatus, NotFoundError, StartupError, StoreError

if TYPE_CHECKING:
    from proxy.desk.desk import Desk
    from proxy.store.reviews.held_replies import HeldReply
    from proxy.store.reviews.queue import Listed

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8_000

NAME_SHOWN = 80  # characters of a name that a client chose
cli = typer.Typer(no_args_is_help=True)
reviews = typer.Typer(no_args_is_help=True, help="List, read, approve and reject held replies.")
cli.add_typer(reviews, name="reviews")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration; ./proxy.yaml if there is one.")
]
AsOption = Annotated[
    str | None, typer.Option("--as", help="The reviewer's name (default: your user name).")
]
LabelOption = Annotated[
    bool | None,
    typer.Option(
        "--correct/--wrong", help="Also label the reply; without either it gets no label."
    ),
]
NoteOption = Annotated[
    str | None, typer.Option(help="The reason; a rejection sends it to the app.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def stop(status: ExitStatus, message: str) -> typer.Exit:
    """Says why on stderr; raise what it returns."""
    typer.echo(message, err=True)
    if status is not ExitStatus.OK:
        typer.echo(f"pinocchio: {status.name.lower()} (exit status {status.value})", err=True)
    return typer.Exit(status)


def refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """End the process if one of these parameters was given on the command line.

    `why` follows the option's name, as in "--since is for ..".
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            (option,) = (each for each in context.command.params if each.name == name)
            raise stop(ExitStatus.UNUSABLE_INPUT, f"{option.opts[-1]} {why}")


@contextmanager
def errors_told() -> Iterator[None]:
    """What start-up and the store raise ends the process with its sentence and status."""
    try:
        yield
    except StartupError as error:
        raise stop(error.status, str(error)) from error
    except StoreError as error:
        raise stop(ExitStatus.STORE_UNAVAILABLE, error.message) from error


@contextmanager
def calibrator_errors_told() -> Iterator[None]:
    """What the calibrator's side raises, and files that cannot be read or written, end the process
    with a sentence."""
    from calibrator import CalibratorError

    try:
        yield
    except (CalibratorError, OSError) as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error


def existing_store(url: str) -> str:
    """The URL; ends the process where it names a file of SQLite that is not there.

    Opening would make an empty one, and in the wrong folder nothing would seem to be recorded.
    """
    from proxy.store.tables import path_of

    if (path := path_of(url)) and not path.is_file():
        message = (
            f"there is no record: {path} does not exist; go to the folder in which the proxy runs, "
            "or name its configuration with --config"
        )
        raise stop(ExitStatus.STORE_UNAVAILABLE, message)
    return url


@cli.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    policy: Annotated[
        str | None, typer.Option(help="Use this pack or policy file, not the configured policy.")
    ] = None,
    scorer_only: Annotated[
        bool,
        typer.Option("--scorer-only", help="Run only the scoring server, for other processes."),
    ] = False,
) -> None:
    """Run the proxy."""
    with errors_told():
        if scorer_only:
            from proxy.scoring.server.app import serve_scorer

            serve_scorer(config, host, port, typer.echo)
            return
        from proxy.startup import serve as run

        run(config, host, port, policy, typer.echo)


@cli.command()
def check(
    config: ConfigOption = None,
    policy: Annotated[
        str | None, typer.Option(help="Check this pack or policy file, not the configured one.")
    ] = None,
) -> None:
    """Check a configuration and its policy; exit status 2 names each problem's file and line."""
    from policies import lint, stream_report
    from proxy.config.problems import located
    from proxy.config.setup import load_setup
    from proxy.scoring.loader import load_recalibration
    from proxy.startup import check_setup, check_stored_keys, without_domains
    from proxy.upstreams.loops import address_of, is_at
    from proxy.upstreams.upstream_lines import upstream_lines

    try:
        setup = load_setup(config, policy)
        check_setup(setup, DEFAULT_HOST)
        check_stored_keys(setup)
    except StartupError as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    typer.echo(f"{setup.path or 'built-in configuration'}: ok")
    rules = counted(len(setup.policy.rules), "rule")
    typer.echo(
        f"policy {setup.policy.name}@{setup.policy.digest}: ok, {setup.policy.mode}, {rules}"
    )
    for line in stream_report(setup.policy):
        typer.echo(f"  {line}")
    typer.echo(f"calibrator {setup.config.calibrator.summary}")
    for name, team in setup.config.teams.items():
        policy_of_team = setup.book.load(team.policy)
        typer.echo(f"team {name}: policy {policy_of_team.name}@{policy_of_team.digest}")
    for line in upstream_lines(setup.config, setup.path):
        typer.echo(line)
    for name, upstream in setup.config.upstreams.items():
        if upstream.base_url and is_at(upstream.base_url, DEFAULT_HOST, DEFAULT_PORT):
            text = (
                f"{address_of(upstream.base_url)} is where `pinocchio serve` itself listens, "
                "unless --port says otherwise"
            )
            place = located(setup.path, ("upstreams", name, "base_url"), text)
            typer.echo(f"  warning: {place}")
    if text := without_domains(setup.config, load_recalibration(setup.config.calibrator)):
        place = located(setup.path, ("calibrator", "recalibration"), text)
        typer.echo(f"  warning: {place}")
    if not setup.config.models:
        name = next(iter(setup.config.upstreams), "NAME")
        text = f'none, so no request can be answered; all are by [{{match: "*", upstream: {name}}}]'
        typer.echo(f"  warning: {located(setup.path, ('models',), text)}")
    for each in setup.book:
        for warning in lint(each):
            typer.echo(f"  warning: {warning}")


@reviews.command("list")
def list_reviews(
    config: ConfigOption = None,
    state: Annotated[
        str, typer.Option(help="List replies in this state: open, released, rejected or expired.")
    ] = "open",
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List held replies and those drawn to be checked, most likely wrong first."""
    from proxy.store.reviews.held_replies import STATE_NAMES, state_name, stored_state

    if (stored := stored_state(state)) is None:
        known = ", ".join(STATE_NAMES)
        message = f"--state must be one of {known}, not {state!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with _desk(config) as desk:
        found = desk.queue.page(stored, limit)
        if not found and not as_json:
            typer.echo(f"no reply is {state_name(stored)}", err=True)
        for listed in found:
            if as_json:
                typer.echo(json.dumps(_facts(desk, desk.held(listed.id))))
                continue
            sure = "no score" if listed.confidence is None else f"{listed.confidence:.4f}"
            age = f"{_span(time.time() - listed.created_at)} ago"
            typer.echo(
                f"{listed.id}  {sure}  {plain(listed.queue)}  {plain(listed.model[:NAME_SHOWN])}"
                f"  {age}  {_end(listed)}"
                f"  {listed.question[:60]!r}"
            )
            for call in desk.calls(listed):
                risk = f"  [{call.risk}]" if call.risk else ""
                typer.echo(f"    {plain(call.marked_line)}{risk}")


@reviews.command("show")
def show_review(id: str, config: ConfigOption = None) -> None:
    """Show one held reply with all that upstream answered."""
    with _desk(config) as desk:
        held = desk.held(id)
        reply = None if held.is_forgotten else json.loads(held.reply)
        facts = _facts(desk, held)
    typer.echo(plain_json(json.dumps({**facts, "reply": reply}, indent=2, ensure_ascii=False)))


@reviews.command("approve")
def approve(
    id: str,
    config: ConfigOption = None,
    reviewer: AsOption = None,
    correct: LabelOption = None,
    note: NoteOption = None,
) -> None:
    """Let the client fetch the reply."""
    _decide(id, config, "approve", reviewer, correct, note)


@reviews.command("release", hidden=True)
def release(id: str, config: ConfigOption = None, reviewer: AsOption = None) -> None:
    """Let the client fetch the reply; the old name of `approve`."""
    _decide(id, config, "approve", reviewer)


@reviews.command("reject")
def reject(
    id: str,
    config: ConfigOption = None,
    reviewer: AsOption = None,
    correct: LabelOption = None,
    note: NoteOption = None,
) -> None:
    """Withhold the reply for good."""
    _decide(id, config, "reject", reviewer, correct, note)


def _decide(
    id: str,
    config: Path | None,
    verdict: Literal["approve", "reject"],
    reviewer: str | None,
    correct: bool | None = None,
    note: str | None = None,
) -> None:
    from proxy.desk.desk import Verdict

    with _desk(config) as desk:
        decided = desk.decide(id, Verdict(verdict, correct, note=note), reviewer or user())
    typer.echo(f"{id} is {decided['state']}")


def user() -> str:
    """The name under which a verdict from a terminal is kept."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "terminal"


@contextmanager
def _desk(config: Path | None) -> Iterator[Desk]:
    """The desk on the configured store; what it refuses ends the process."""
    from proxy.config.setup import load_setup, load_store_config
    from proxy.desk.desk import Desk
    from proxy.store.reviews.queue import ReviewQueue

    with errors_told():
        store = existing_store(load_store_config(config).store)
        setup = None
        with suppress(StartupError):  # a broken policy keeps nobody from deciding
            setup = load_setup(config)
        desk = Desk(ReviewQueue(store), (lambda: setup) if setup is not None else None)
        try:
            yield desk
        except (NotFoundError, DecidedError) as error:
            raise stop(ExitStatus.FAILED, error.message) from error
        finally:
            desk.queue.close()


def plain(text: str) -> str:
    """Foreign text for a terminal: what could move its cursor is shown as its escape."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def plain_json(text: str) -> str:
    """JSON for a terminal: the same values, and what could move its cursor is escaped."""
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def _escape(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def _facts(desk: Desk, held: HeldReply) -> dict[str, object]:
    from proxy.store.reviews.held_replies import state_name

    names = ("id", "queue", "model", "policy", "confidence", "calibrator", "question")
    times = ("created_at", "expires_at", "decided_at", "taken_at")
    facts: dict[str, object] = {name: getattr(held, name) for name in names + times}
    bound = json.loads(held.calls) if held.calls else []
    calls = [
        {"tool": call.name, **call.facts(), **(bound[at] if at < len(bound) else {})}
        for at, call in enumerate(desk.calls(held))
    ]
    more = {
        "state": state_name(held.state),
        "on_expiry": held.on_expiry,
        "calls": calls or bound,
    }
    return facts | more | {"decided_by": held.decided_by, "note": held.note}


def _end(held: Listed) -> str:
    """When a reply expires and what comes of it then, or what has."""
    if held.state == "held":
        left_s = max(0.0, held.expires_at - time.time())
        return f"{held.on_expiry} in {_span(left_s)}"
    return held.state if held.decided_by is None else f"{held.state} by {held.decided_by}"


def _span(seconds: float) -> str:
    """A time in its largest unit, as the console writes it: `13 d`."""
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{int(seconds)} s"
