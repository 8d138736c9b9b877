"""The commands for the chain over the record: `audit verify` and `audit declare`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption, stop
from proxy.commands.opening.opened_record import opened_record
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from proxy.store.verification import VerificationResult

cli = typer.Typer(no_args_is_help=True, help="Check whether somebody has changed the record.")


@cli.command("verify")
def verify_record(
    config: ConfigOption = None,
    head: Annotated[
        str | None,
        typer.Option(help="A head printed before: detects deleted final entries."),
    ] = None,
    known: Annotated[
        int,
        typer.Option(
            "--other-key",
            min=0,
            help="How many of the first entries were made with another key, as you know.",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Recompute the chain: exit status 0, or 1 with what was changed, removed or inserted.

    The last line is its head, `head SEQUENCE:MAC`. Keep that where nobody with write access to the
    store can change it.
    """
    from proxy.config.setup import load_store_config
    from proxy.store.database.chain import KEY_VARIABLE, chain_key, has_key_file
    from proxy.store.verification import is_head, verify

    if head is not None and not is_head(head):  # a typing error must not look like tampering
        message = f"--head must be SEQUENCE:MAC, as `audit verify` prints it, not {head!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with opened_record(config) as record:
        store = load_store_config(config).store
        if (key := chain_key(store)) is None:
            raise stop(
                ExitStatus.UNUSABLE_INPUT,
                f"there is no key: {KEY_VARIABLE} is not set and no file beside the store has one",
            )
        result = verify(record.engine, key, head, has_begun=has_key_file(store))
    if as_json:
        values = {**asdict(result), "is_intact": result.is_intact}
        typer.echo(json.dumps(values | {"breaks": [asdict(each) for each in result.breaks]}))
    else:
        _print_verification(result)
    if not result.is_intact or result.unverified > known:
        raise typer.Exit(ExitStatus.FAILED)


def _print_verification(result: VerificationResult) -> None:
    """Print a verification for people: counts, keys, declared cuts, breaks, the head last."""
    from proxy.store.database.chain import KEY_VARIABLE

    rows = ", ".join(f"{count} of {name}" for name, count in sorted(result.rows.items()))
    if result.entries == 0:
        beginning = "the chain has no entry yet: it begins with what is recorded next"
        typer.echo(
            f"{beginning}; until then it shows no change to the "
            f"{plural(result.earlier, 'row that is', 'rows that are')} there"
        )
    else:
        typer.echo(f"{plural(result.entries, 'entry covers', 'entries cover')} {rows or 'no rows'}")
    if result.entries and not result.has_entry_of_key:
        typer.echo(
            f"{KEY_VARIABLE}, or the file beside the store, has another key than all of these "
            "entries: verify them with the key that they were made with (or all were changed)"
        )
    if result.unverified and result.verified_since is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(result.verified_since))
        typer.echo(
            f"this key has been in use since entry {result.unverified + 1}, {at}: the entries "
            "before it were made with another key, or changed; verify them with that key "
            f"(--other-key {result.unverified} accepts them)"
        )
    if result.forgotten:
        typer.echo(
            f"{plural(result.forgotten, 'exchange was', 'exchanges were')} deleted as the time came"
        )
    for entry in result.declared:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry.at))
        cuts = plural(len(entry.cuts), "missing entry", "missing entries")
        typer.echo(f"  entry {entry.sequence}: {entry.by!r} declared {cuts}, {at}: {entry.why!r}")
    for each in result.breaks:
        typer.echo(f"  {each}")
    if result.count > len(result.breaks):
        typer.echo(f"  and {result.count - len(result.breaks)} more")
    places = plural(result.count, "place")
    if result.entries or not result.is_intact:
        since = f" since entry {result.unverified + 1}" if result.unverified else ""
        typer.echo(f"nothing was changed{since}" if result.is_intact else f"BROKEN in {places}")
    if result.head is not None:
        typer.echo(f"head {result.head}")


@cli.command("declare")
def declare_cuts(
    by: Annotated[str, typer.Option(help="Who says so.")],
    why: Annotated[str, typer.Option(help="What happened, such as a restored backup.")],
    config: ConfigOption = None,
) -> None:
    """Declare, once, that entries which a running proxy found missing are no tampering.

    The chain keeps who said so and why, and `audit verify` prints it for ever. Nothing else can be
    declared: changed or removed rows stay broken.
    """
    from proxy.config.setup import load_store_config
    from proxy.store.database.chain import DECLARED, Chain, chain_key
    from proxy.store.database.verdicts import reading
    from proxy.store.verification import undeclared_cuts

    if not by.strip() or not why.strip():
        raise stop(ExitStatus.UNUSABLE_INPUT, "--by and --why need a name and a reason")
    with opened_record(config) as record:
        store = load_store_config(config).store
        if chain_key(store) is None:
            raise stop(ExitStatus.UNUSABLE_INPUT, "there is no key, so there is no chain")
        with reading(record.engine) as connection:
            cuts = undeclared_cuts(connection)
            if not cuts:
                raise stop(ExitStatus.FAILED, "no entry is missing that is not declared already")
            covers = json.dumps({"by": by, "why": why, "cuts": cuts}).encode()
            Chain(store).append(connection, DECLARED, "", covers)
            connection.commit()
    typer.echo(f"{plural(len(cuts), 'missing entry is', 'missing entries are')} declared")
