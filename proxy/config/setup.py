"""A configuration with the files that it names, read and checked: the basis of one generation."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policies import InvalidDocumentError, Policy, nearest
from proxy.config.policy_book import PolicyBook
from proxy.config.sections import Config, find_config, load_config, load_config_policy
from proxy.config.settings.problems import add_location
from proxy.errors import ExitStatus, StartupError
from proxy.store.database.client_keys import ClientKey

if TYPE_CHECKING:
    from calibrator import FactFile, Recalibrations


_OWN: Final[dict[str, Any]] = {  # left out of the digest: these may differ between machines
    **dict.fromkeys(("store", "workers", "policies"), True),
    "admin": {"host", "port"},
    "guardrails": {"host", "port"},
    "calibrator": {
        **dict.fromkeys(("recalibration", "device", "threads"), True),
        "stand_in": {"recalibration"},
    },
    "teams": {"__all__": {"policy"}},
}


@dataclass(frozen=True, slots=True)
class Setup:
    """A checked configuration and its files; `path` is None where all of it is built in."""

    path: Path | None
    config: Config
    book: PolicyBook
    recalibrations: Recalibrations | None = None
    of_stand_in: Recalibrations | None = None  # those that correct the stand-in's scores
    facts: FactFile | None = None  # compared with replies, beside their conversations

    @property
    def policy(self) -> Policy:
        """The policy of callers without their own."""
        return self.book.default

    @property
    def files(self) -> set[Path]:
        """The files that were read; the setup has to be loaded again when one changes."""
        own = {self.path} if self.path is not None else set()
        calibrator = self.config.calibrator
        paths = calibrator.recalibration
        if calibrator.stand_in is not None:
            paths = (*paths, *calibrator.stand_in.recalibration)
        facts = {calibrator.facts} if calibrator.facts is not None else set()
        return self.book.files() | own | facts | (_files_of(paths) if paths else set())

    def digest(self) -> str:
        """Return 12 hex digits that proxies with the same configuration have in common.

        Policies, certificates and recalibrations count by their content, not by their place.
        Secrets count as set or not set. Addresses of this machine do not count. Raises OSError.
        """
        default = {"": self.policy.digest}
        teams = self.config.teams.items()
        policies = {name: self.book.load(team.policy).digest for name, team in teams}
        stand_in = self.config.calibrator.stand_in
        paths = (
            *self.config.calibrator.recalibration,
            *(stand_in.recalibration if stand_in else ()),
        )
        curves = [_hash(each.read_bytes()) for each in sorted(_files_of(paths))] if paths else []
        values = [self.config.model_dump(mode="json", exclude=_OWN), default | policies, curves]
        return _hash(json.dumps(values, sort_keys=True).encode())[:12]


def _hash(content: bytes) -> str:
    """Return the SHA-256 of the content as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def _files_of(recalibrations: Sequence[Path]) -> set[Path]:
    """Return the files of recalibrations; `FOLDER/current` adds the pointer files beside it."""
    from calibrator import recalibration_files

    return set(recalibration_files(recalibrations))


def problem_of(key: ClientKey, setup: Setup) -> str | None:
    """Return a sentence about a client key's team or policy that the configuration lacks, or None.

    An unknown team is named with the nearest known one; an unreadable policy counts as lacking.
    """
    teams = setup.config.teams
    if key.team is not None and key.team not in teams:
        suggestion = nearest(key.team, teams)
        hint = (
            f"; did you mean {suggestion!r}?" if suggestion else f"; known here: {', '.join(teams)}"
        )
        return f"key {key.id}: there is no team {key.team!r}{hint if teams else ''}"
    try:
        setup.book.load(key.policy)
    except InvalidDocumentError as error:
        return f"key {key.id}: {error}"
    return None


def problems_of(keys: Iterable[ClientKey], setup: Setup) -> list[str]:
    """Return a sentence for each active key whose team or policy the configuration lacks."""
    now = time.time()
    sentences = (problem_of(key, setup) for key in keys if key.state(now) == "active")
    return [problem for problem in sentences if problem is not None]


def load_setup(path: Path | None, policy: str | None = None) -> Setup:
    """Read the configuration and its policies, those of teams included; for None, find the file.

    `policy` replaces the configured default policy. Recalibrations and facts are not loaded here.
    Raises StartupError with the file and line of every problem.
    """
    config_path, config = find_config(path), load_store_config(path)
    with _locate_policy_error(config_path, *(() if policy else ("policies",))):
        default = load_config_policy(config, config_path, policy)
    book = PolicyBook(default, config_path.parent if config_path else None)
    for name, team in config.teams.items():
        with _locate_policy_error(config_path, "teams", name, "policy"):
            book.load(team.policy)
    return Setup(config_path, config, book)


@contextmanager
def _locate_policy_error(path: Path | None, *key: str) -> Iterator[None]:
    """Convert a policy's InvalidDocumentError, raised inside, to a StartupError.

    A problem without a line, such as an unreadable policy, gets the line of `key` in the file
    `path`, the key that names the policy, such as `"teams", "a", "policy"`.
    """
    try:
        yield
    except InvalidDocumentError as error:
        problems = [str(p) if p.line else add_location(path, key, str(p)) for p in error.problems]
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(problems)) from error


def load_store_config(path: Path | None) -> Config:
    """Read the configuration without its policies; for None, `proxy.yaml` or the defaults.

    A broken policy thus does not stop commands that only need the store. Raises StartupError.
    """
    try:
        return load_config(find_config(path))
    except InvalidDocumentError as error:
        raise unusable(error) from error


def unusable(error: InvalidDocumentError) -> StartupError:
    """Return the StartupError (unusable input) that lists the problems, one a line."""
    return StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(map(str, error.problems)))


@contextmanager
def locate_error(path: Path | None, *key: str) -> Iterator[None]:
    """Add the file and line of a key, such as `"admin", "port"`, to a StartupError from inside."""
    try:
        yield
    except StartupError as error:
        raise StartupError(error.status, add_location(path, key, str(error))) from error
