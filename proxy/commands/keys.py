"""The commands for client keys: `keys create`, `keys list` and `keys revoke`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from proxy.commands.opening.exits import ConfigOption, existing_store, exit_on_errors, stop
from proxy.commands.reviews.reviews import JsonOption
from proxy.errors import ExitStatus, StartupError

if TYPE_CHECKING:
    from proxy.config.setup import Setup
    from proxy.store.database.client_keys import ClientKey, KeyStore

cli = typer.Typer(no_args_is_help=True, help="Create, list and revoke client keys.")

T = TypeVar("T")
_UNITS_S = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


Team = Annotated[str | None, typer.Option(help="The team that uses it, from the configuration.")]
Name = Annotated[str | None, typer.Option(help="The name that policies and records use for it.")]
Role = Annotated[str, typer.Option(help="caller for apps; reviewer or admin for the review desk.")]
Policy = Annotated[
    str | None, typer.Option(help="Use this pack, or this file beside the configuration.")
]
RequestsPerMinute = Annotated[
    int | None, typer.Option(min=1, help="Answer further requests with 429; of each proxy.")
]
MaxHeld = Annotated[
    int | None,
    typer.Option(min=1, help="How many of its replies may wait for review at a time."),
]
Attach = Annotated[
    str | None,
    typer.Option(help="Where replies carry the confidence: both, headers, body, none."),
]
Surfaces = Annotated[
    str | None, typer.Option(help="The only APIs that it may use, such as chat,responses.")
]
Queues = Annotated[
    str | None,
    typer.Option(help="The only queues that a reviewer sees, such as billing,legal."),
]
Expires = Annotated[
    str | None, typer.Option(help="How long it is valid, such as 30m, 12h, 90d or 52w.")
]


@cli.command()
def create(
    config: ConfigOption = None,
    team: Team = None,
    name: Name = None,
    role: Role = "caller",
    policy: Policy = None,
    requests_per_minute: RequestsPerMinute = None,
    max_held: MaxHeld = None,
    attach: Attach = None,
    surfaces: Surfaces = None,
    queues: Queues = None,
    expires: Expires = None,
    as_json: JsonOption = False,
) -> None:
    """Make a client key and print it, this once; running proxies know it within a second."""
    from proxy.gate.secret_keys import digest_of, new_key_id, new_secret
    from proxy.store.database.client_keys import ROLES, ClientKey

    if role not in ROLES:
        message = f"--role must be one of {', '.join(ROLES)}, not {role!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    now, secret = time.time(), new_secret()
    key = ClientKey(
        id=new_key_id(),
        digest=digest_of(secret.encode()),
        created_at=now,
        name=name,
        team=team,
        policy=policy,
        requests_per_minute=requests_per_minute,
        max_held=max_held,
        attach=attach,
        expires_at=None if expires is None else now + _seconds(expires),
        role=role,
        surfaces=_names(surfaces),
        queues=_names(queues),
    )
    setup = _with_store(config, lambda store: _add(key, _setup(config), store), may_make=True)
    if as_json:
        typer.echo(json.dumps({"id": key.id, "key": secret}))
    else:
        typer.echo(secret)
        typer.echo(f"pinocchio: this is {key.id}; it cannot be shown again", err=True)
    if key.role == "caller" and not setup.config.needs_keys:
        typer.echo("pinocchio: the proxy asks for keys once `keys: required` is set", err=True)


@cli.command("list")
def list_keys(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List all keys, also revoked ones; secrets are never shown."""
    now = time.time()
    keys = _with_store(config, lambda store: store.all())
    if not keys and not as_json:
        typer.echo("there is no key", err=True)
    for key in keys:
        if as_json:
            typer.echo(json.dumps(_facts(key, now)))
            continue
        words = [key.id, f"{key.state(now):8}", f"made {_day(key.created_at)}"]
        words += [f"expires {_day(key.expires_at)}"] if key.expires_at else []
        words += [key.role] if key.role != "caller" else []
        settings = (
            *("name", "team", "policy", "requests_per_minute", "max_held", "attach"),
            *("surfaces", "queues"),
        )
        words += [f"{name}={value}" for name in settings if (value := getattr(key, name))]
        typer.echo("  ".join(words))


@cli.command()
def revoke(id: str, config: ConfigOption = None) -> None:
    """Revoke a key; running proxies refuse it within a second."""
    is_done, is_known = _with_store(config, lambda store: (store.revoke(id), store.has(id)))
    if not is_done:
        message = f"there is no key {id} to revoke; `keys list` has their ids"
        raise stop(ExitStatus.FAILED, f"{id} is revoked already" if is_known else message)
    typer.echo(f"{id} is revoked")


def _add(key: ClientKey, setup: Setup, store: KeyStore) -> Setup:
    """Add a key to the store, and return `setup`.

    Raises StartupError for a key that the configuration could not serve.
    """
    from proxy.config.sections import NAME
    from proxy.config.setup import problem_of
    from proxy.gate.secret_keys import ATTACH
    from proxy.startup.startup import check_models

    problem = problem_of(key, setup)
    if key.name is not None and (not NAME.fullmatch(key.name) or key.name.startswith("key_")):
        problem = (
            f"--name is at most 64 of A-Z, a-z, 0-9, '.', '_' and '-', and begins with no 'key_', "
            f"not {key.name!r}"
        )
    if key.role != "caller":
        problem = problem or _problem_of_reviewer(key)
    if key.attach is not None and key.attach not in ATTACH:
        problem = f"--attach must be one of {', '.join(ATTACH)}, not {key.attach!r}"
    problem = problem or _problem_of_names(key)
    if problem is not None:
        raise StartupError(ExitStatus.UNUSABLE_INPUT, problem.removeprefix(f"key {key.id}: "))
    check_models(setup)
    store.add(key)
    return setup


def _names(text: str | None) -> str | None:
    """Return comma-separated names without blanks around them; None for None."""
    return None if text is None else ",".join(name.strip() for name in text.split(","))


def _problem_of_names(key: ClientKey) -> str | None:
    """Return a sentence about invalid surfaces of a caller or queues of a reviewer, or None."""
    from policies import nearest
    from proxy.config.settings.allowed_surfaces import SURFACES

    for name in key.surfaces.split(",") if key.surfaces is not None else ():
        if name not in SURFACES:
            suggestion = nearest(name, SURFACES)
            hint = (
                f"; did you mean {suggestion!r}?"
                if suggestion
                else f"; there are: {', '.join(SURFACES)}"
            )
            return f"there is no surface {name!r}{hint}"
    if key.queues is not None and key.role != "reviewer":
        return "--queues is for reviewers, who see them at the desk: add --role reviewer"
    if key.queues is not None and not all(key.queues.split(",")):
        return f"--queues names queues with commas between, not {key.queues!r}"
    return None


def _problem_of_reviewer(key: ClientKey) -> str | None:
    """Return a sentence about a desk key that has callers' settings or no name, or None.

    Settings for completions have no meaning at the desk, and verdicts need a name.
    """
    of_callers = ("team", "policy", "requests_per_minute", "max_held", "attach", "surfaces")
    for name in of_callers:
        if getattr(key, name) is not None:
            return f"--{name.replace('_', '-')} is for callers, not for a key of role {key.role}"
    if key.name in (None, "admin"):
        return f"a key of role {key.role} needs a --name, under which verdicts are kept (not admin)"
    return None


def _setup(config: Path | None) -> Setup:
    """Load the configuration with its policies; raises StartupError."""
    from proxy.config.setup import load_setup

    return load_setup(config)


def _with_store(config: Path | None, work: Callable[[KeyStore], T], *, may_make: bool = False) -> T:
    """Call `work` with the configured store's keys, and return its result.

    Ends the process when the store cannot be used, or does not exist and `may_make` is False.
    Policies are not read: a mistake in one must not keep a key from being revoked.
    """
    from proxy.config.setup import load_store_config
    from proxy.startup.startup import check_store
    from proxy.store.database.client_keys import KeyStore

    with exit_on_errors():
        config_of_store = load_store_config(config)
        if not may_make:
            existing_store(config_of_store.store)
        check_store(config_of_store)
        store = KeyStore(config_of_store.store)
        try:
            return work(store)
        finally:
            store.close()


def _seconds(text: str) -> int:
    """Return a duration such as `12h` in seconds; end the process for anything else."""
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    if match is None or int(match[1]) == 0:
        message = f"--expires must be a duration such as 30m, 12h, 90d or 52w, not {text!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    return int(match[1]) * _UNITS_S[match[2]]


def _facts(key: ClientKey, now: float) -> dict[str, Any]:
    """Return the columns of a key without its digest, and its state, as JSON values."""
    return {"state": key.state(now), **{k: v for k, v in asdict(key).items() if k != "digest"}}


def _day(at: float) -> str:
    """Return the UTC date of a time in seconds since 1970, such as `2026-05-02`."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()
