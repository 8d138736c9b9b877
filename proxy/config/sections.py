"""The sections of `proxy.yaml`, parsed once, strictly, into immutable values.

Every section is optional. A mistake is refused with file, line, key and the nearest valid key;
`load_config` collects all mistakes before it raises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from calibrator import CheckpointError, check_device
from policies import InvalidDocumentError, Policy, Problem, load_document, load_policy
from proxy.config.settings.admin import AdminConfig
from proxy.config.settings.allowed_surfaces import SURFACES
from proxy.config.settings.engines import ENGINES, Engine, InProcess, ScoringServer
from proxy.config.settings.guardrails import GuardrailsConfig
from proxy.config.settings.images import ImagesConfig
from proxy.config.settings.problems import hint, problem_of, sentence
from proxy.config.settings.section import Secret, Section, Size
from proxy.config.settings.telemetry import TelemetryConfig
from proxy.config.settings.upstreams import ModelRoute, UpstreamConfig, fallback_problems
from proxy.config.settings.webhooks import WebhookConfig, webhook_problems
from proxy.config.settings.workers import Workers, WorkersConfig
from proxy.errors import ExitStatus, StartupError

DEFAULT_FILE = Path("proxy.yaml")
NO_CALIBRATOR = "none"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # of teams and keys


def _store(value: str) -> str:
    """Return a URL of SQLite or PostgreSQL unchanged.

    Raise ValueError (no URL in it) for others.
    """
    if not re.match(r"sqlite:///.|postgres(ql)?://.", value):
        kind = value.partition("://")[0] if "://" in value else "no URL"
        raise ValueError(
            "a store is sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE, "
            f"and this is {kind[:32]!r}"
        )
    return value


def _device(value: str) -> str:
    """Return a device's name unchanged, also of a missing one.

    Raise ValueError if it is unknown.
    """
    try:
        check_device(value)
    except CheckpointError as error:
        raise ValueError(str(error)) from error
    return value


def _path(value: Any) -> Any:
    """Convert text to a path; return empty text and any other value unchanged."""
    return Path(value) if isinstance(value, str) and value else value


def _one_path(value: Any) -> Any:
    """Convert text to a path; return None for empty text, and any other value unchanged."""
    return None if value == "" else _path(value)


def _paths(value: Any) -> Any:
    """Convert one path, or a list, to a tuple of paths; empty text and null give ()."""
    values = value if isinstance(value, list | tuple) else [value] if value else []
    return tuple(map(_path, values))


def _keys(value: Any) -> Any:
    """Return `open` for [], other values unchanged; raise ValueError for a list that holds keys."""
    if isinstance(value, list):
        if value:
            raise ValueError(
                "no keys here; say 'required' and make them with `pinocchio keys create`"
            )
        return "open"
    return value


def _admin(value: Any) -> Any:
    """Read `true` or `false` as `{enabled: true}` or so; return any other value unchanged."""
    return {"enabled": value} if isinstance(value, bool) else value


def _surfaces(value: Any) -> Any:
    """Convert a list to a tuple, no other value; raise ValueError for an unknown surface in it."""
    if not isinstance(value, list | tuple):
        return value
    for name in value:
        if name not in SURFACES:
            raise ValueError(f"there is no surface {name!r}{hint(str(name), SURFACES)}")
    return tuple(value)


FilePath = Annotated[Path | None, BeforeValidator(_one_path)]
FilePaths = Annotated[tuple[Path, ...], BeforeValidator(_paths)]
Surfaces = Annotated[tuple[str, ...] | None, BeforeValidator(_surfaces)]
"""The surfaces under `/v1/` that clients may use; None: all of them."""


class StandInConfig(Section):
    """A calibrator in the proxy's own process, for replies that the main one does not score."""

    checkpoint: str = "embedded"
    recalibration: FilePaths = ()
    timeout_s: float = Field(default=0.5, gt=0)  # in addition to the main calibrator's timeout

    @model_validator(mode="after")
    def _is_one(self) -> StandInConfig:
        """Raise ValueError for `checkpoint: none`."""
        if self.checkpoint == NO_CALIBRATOR:
            raise ValueError("'none' stands in for nothing; remove stand_in")
        return self


Corrected = TypeVar("Corrected", "CalibratorConfig", StandInConfig)


def _stand_in(value: Any) -> Any:
    """Read a text such as `embedded` as `{checkpoint: embedded}`, any other value unchanged."""
    return {"checkpoint": value} if isinstance(value, str) else value


StandIn = Annotated[StandInConfig | None, BeforeValidator(_stand_in)]


class RatedModel(Section):
    """The rating of a model that the calibrator does not know."""

    like: str = Field(min_length=1)  # the name of a model that the calibrator knows


class CalibratorConfig(Section):
    checkpoint: str = Field(
        default_factory=lambda: os.environ.get("PINOCCHIO_CALIBRATOR") or "embedded"
    )
    recalibration: FilePaths = ()  # files that `pinocchio recalibrate` wrote
    facts: FilePath = None  # names and texts that replies are compared with, as JSON lines
    client_domains: bool = False  # whether x-pinocchio-domain selects a recalibration curve
    device: Annotated[str, AfterValidator(_device)] = "auto"
    threads: int | None = Field(default=None, gt=0)
    timeout_s: float = Field(default=2.0, gt=0)
    max_queue: int = Field(default=1_024, gt=0)
    images: ImagesConfig = ImagesConfig()
    engine: Engine = InProcess()
    models: dict[str, RatedModel] = Field(default_factory=dict)  # by the upstream's name for it
    stand_in: StandIn = None  # scores where this calibrator is late, too busy or missing

    @property
    def names_checkpoint(self) -> bool:
        """Whether the configuration names a checkpoint; otherwise the default applies."""
        return "checkpoint" in self.model_fields_set

    @property
    def rated_like(self) -> dict[str, str]:
        """The models unknown to the calibrator, each with the known model that it is rated like."""
        return {name: model.like for name, model in self.models.items()}

    @property
    def summary(self) -> str:
        """The checkpoint, and the engine where scores are computed elsewhere, for people."""
        if isinstance(self.engine, InProcess):
            return self.checkpoint
        prefix = f"{self.checkpoint}, " if self.names_checkpoint else ""
        return f"{prefix}engine {self.engine.place}"

    @property
    def longest_s(self) -> float:
        """The longest time in seconds that a reply waits for its score, a stand-in's included."""
        return self.timeout_s + (self.stand_in.timeout_s if self.stand_in is not None else 0.0)

    @model_validator(mode="after")
    def _check_recalibration(self) -> CalibratorConfig:
        """Raise ValueError for `recalibration` with `checkpoint: none`."""
        if self.checkpoint == NO_CALIBRATOR and self.recalibration:
            raise ValueError(
                "'checkpoint: none' gives no number to recalibrate; remove recalibration"
            )
        return self

    @model_validator(mode="after")
    def _can_read_facts(self) -> CalibratorConfig:
        """Raise ValueError for `facts` with `checkpoint: none` or an engine that reads none."""
        if self.facts is None:
            return self
        if self.checkpoint == NO_CALIBRATOR:
            raise ValueError("'checkpoint: none' compares no reply with facts; remove facts")
        if not isinstance(self.engine, InProcess | ScoringServer):
            raise ValueError(
                f"{self.engine.kind} reads no facts; remove facts, or let the embedded calibrator "
                "score"
            )
        return self

    @model_validator(mode="after")
    def _has_another_stand_in(self) -> CalibratorConfig:
        """Raise ValueError for `stand_in` with `checkpoint: none`, or of the same checkpoint."""
        if self.stand_in is None:
            return self
        if self.checkpoint == NO_CALIBRATOR:
            raise ValueError("'checkpoint: none' is never late or busy; remove stand_in")
        if isinstance(self.engine, InProcess) and self.stand_in.checkpoint == self.checkpoint:
            raise ValueError("stand_in is the calibrator itself; name another one, or remove it")
        return self

    @model_validator(mode="after")
    def _fits_its_engine(self) -> CalibratorConfig:
        """Raise ValueError for settings that an engine outside this process cannot use."""
        if isinstance(self.engine, InProcess):
            return self
        if self.checkpoint == NO_CALIBRATOR:
            raise ValueError("'checkpoint: none' needs no engine; remove one of them")
        if (self.device, self.threads) != ("auto", None):
            raise ValueError(f"{self.engine.kind} computes elsewhere; remove device and threads")
        self.engine.check_checkpoint(self.names_checkpoint, bool(self.recalibration))
        return self


class AttachConfig(Section):
    """The places where the confidence is attached."""

    headers: bool = True
    body: bool = True


class RecordsConfig(Section):
    """The record of exchanges in the store: facts, and no text but that of reviewed replies."""

    keep_days: float = Field(default=30, ge=0)  # 0: nothing is recorded
    keep_content_days: float = Field(default=30, ge=0)  # after a reply was decided on or expired


class AuditConfig(Section):
    """A random share of delivered replies that is kept, with its text, to be labelled."""

    share: float = Field(default=0.0, ge=0, le=1)  # 0: nothing is kept
    keep_days: float = Field(default=14, gt=0)  # then a reply leaves the queue without a label


class TeamConfig(Section):
    """The settings of a team's keys, unless a key has its own; None means the general setting."""

    policy: str | None = Field(default=None, min_length=1)
    domain: str | None = Field(default=None, min_length=1)  # the domain of its questions
    requests_per_minute: int | None = Field(default=None, gt=0)  # of all its keys together
    max_held: int | None = Field(default=None, gt=0)  # replies, of all its keys together
    attach: AttachConfig | None = None
    audit_share: float | None = Field(default=None, ge=0, le=1)
    surfaces: Surfaces = None


class ScorerConfig(Section):
    """The settings of `pinocchio serve --scorer-only`, the scoring server for other processes."""

    token: Secret = Field(  # which those processes send; beyond loopback one is required
        default_factory=lambda: SecretStr(os.environ.get("PINOCCHIO_SCORER_TOKEN", ""))
    )


class LimitsConfig(Section):
    max_body: Size = 64 * 2**20
    stream_wait_ms: int = Field(default=300, ge=0)
    commit_after_s: float = Field(default=15, gt=0)
    max_held: int = Field(default=100_000, gt=0)
    standing_s: float = Field(default=3_600, ge=0)  # life of an approval for more calls; 0: none
    max_connections: int | None = Field(default=None, gt=0)  # None: as many as open files allow
    drain_s: float = Field(default=0, ge=0)  # after SIGTERM; new requests are still answered
    grace_s: int = Field(default=30, gt=0)  # after that, for requests that are in progress


def _unknown_upstream(name: str, known: Collection[str]) -> str:
    return f"there is no upstream {name!r}{hint(name, known)}"


def _default_upstreams() -> dict[str, UpstreamConfig]:
    """Return `openai`, by OPENAI_BASE_URL (StartupError if bad) and OPENAI_API_KEY, and `demo`."""
    base_url = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    api_key = os.environ.get("OPENAI_API_KEY", "")
    if not re.match(r"https?://[^/\s]", base_url):
        ending = "" if "@" in base_url else f", not {base_url[:200]!r}"  # there may be a password
        text = f"OPENAI_BASE_URL must begin with http:// or https:// and a host{ending}"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, text)
    return {
        "openai": UpstreamConfig(base_url=base_url, api_key=SecretStr(api_key)),
        "demo": UpstreamConfig(demo=True),
    }


def _default_models() -> tuple[ModelRoute, ...]:
    """Return two routes: the model `demo` to the upstream `demo`, all others to `openai`."""
    return (ModelRoute(match="demo", upstream="demo"), ModelRoute(match="*", upstream="openai"))


class Config(Section):
    """The whole of `proxy.yaml`."""

    upstreams: dict[str, UpstreamConfig] = Field(default_factory=_default_upstreams)
    models: Annotated[tuple[ModelRoute, ...], Field(strict=False)] = Field(
        default_factory=_default_models
    )
    calibrator: CalibratorConfig = Field(default_factory=CalibratorConfig)
    policies: str = "observe"
    attach: AttachConfig = AttachConfig()
    store: Annotated[str, AfterValidator(_store)] = Field(
        default="sqlite:///pinocchio.db", repr=False
    )
    records: RecordsConfig = RecordsConfig()
    audit: AuditConfig = AuditConfig()
    keys: Annotated[Literal["open", "required"], BeforeValidator(_keys)] = "open"
    surfaces: Surfaces = None
    websockets: Literal["relay", "refuse"] = "relay"  # on scored surfaces without enforcement
    shared_ids: Annotated[tuple[str, ...], Field(strict=False)] = ()  # globs, open to every key
    teams: dict[str, TeamConfig] = Field(default_factory=dict)
    admin: Annotated[AdminConfig, BeforeValidator(_admin)] = AdminConfig()
    webhooks: Annotated[tuple[WebhookConfig, ...], Field(strict=False)] = ()
    limits: LimitsConfig = LimitsConfig()
    workers: Workers = WorkersConfig()
    scorer: ScorerConfig = Field(default_factory=ScorerConfig)
    telemetry: TelemetryConfig = TelemetryConfig()
    guardrails: GuardrailsConfig | None = None  # None: no listener for guardrails

    @property
    def needs_keys(self) -> bool:
        """Whether only requests with a client key are answered."""
        return self.keys == "required"

    def contradictions(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Return one check's contradictions of sections as (path of keys, sentence), or []."""
        return (
            self._lost_models()
            or fallback_problems(self.models, self.upstreams)
            or self._about_audits()
            or self._about_keys()
            or webhook_problems(self.admin, self.webhooks)
        )

    def _about_audits(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Return a problem where audited replies outlive their record, which labels need, or []."""
        shares = (self.audit.share, *(team.audit_share for team in self.teams.values()))
        if not any(shares) or self.audit.keep_days <= self.records.keep_days:
            return []
        text = (
            f"audited replies wait {self.audit.keep_days:g} days for a label, their record stays "
            f"{self.records.keep_days:g}: lower audit.keep_days or raise records.keep_days"
        )
        return [(("audit",) if self.audit.share else ("teams",), text)]

    def _about_keys(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Return problems: bad team names, teams without client keys, upstreams without a key."""
        found: list[tuple[tuple[str | int, ...], str]] = [
            (("teams", name), "a team's name is at most 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
            for name in self.teams
            if not NAME.fullmatch(name)
        ]
        if not self.needs_keys:
            if self.teams:
                found.append(
                    (("teams",), "teams are told apart by their keys: add 'keys: required'")
                )
            return found
        return found + [
            (
                ("upstreams", name),
                "with 'keys: required' the client's key stays here; set api_key "
                "(any word, where upstream asks for none)",
            )
            for name, upstream in self.upstreams.items()
            if not (upstream.demo or upstream.lends_a_key)
        ]

    def _lost_models(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Return a problem for each route to an unknown upstream; one for all default routes."""
        problems: list[tuple[tuple[str | int, ...], str]] = [
            (("models", i, "upstream"), _unknown_upstream(route.upstream, self.upstreams))
            for i, route in enumerate(self.models)
            if route.upstream not in self.upstreams
        ]
        if problems and "models" not in self.model_fields_set:
            example = f'models: [{{match: "*", upstream: {next(iter(self.upstreams), "NAME")}}}]'
            return [(("upstreams",), f"say which models these answer, for example {example}")]
        return problems


def find_config(path: Path | None) -> Path | None:
    """Return the given path, else `./proxy.yaml` if that file exists, else None."""
    return path or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)


def load_config(path: Path | None, env: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration; for None return the defaults.

    `env` holds the variables for `${NAME}`, by default the environment. Paths are resolved from the
    file's folder. Raises InvalidDocumentError with the file and line of every problem.
    """
    if path is None:
        return Config()
    document = load_document(path, env=os.environ if env is None else env)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise InvalidDocumentError(
            (Problem(document.source, 1, "a configuration is a mapping of sections"),)
        )
    try:
        config = Config.model_validate(_prepare_values(value))
    except ValidationError as error:
        problems = [
            problem_of(document, problem, _keys_at(problem["loc"][:-1]))
            for problem in error.errors()
        ]
        raise InvalidDocumentError(tuple(sorted(problems, key=lambda p: p.line))) from error
    if problem := config.contradictions():
        raise InvalidDocumentError(tuple(sentence(document, loc, text) for loc, text in problem))
    return _resolve_paths(config, path.parent)


def _resolve_paths(config: Config, folder: Path) -> Config:
    """Return a copy with recalibrations and facts, also the stand-in's, as paths below `folder`."""
    calibrator = _recalibrated_from(config.calibrator, folder)
    if calibrator.facts is not None:
        calibrator = calibrator.model_copy(update={"facts": folder / calibrator.facts})
    if (stand_in := calibrator.stand_in) is not None:
        resolved = {"stand_in": _recalibrated_from(stand_in, folder)}
        calibrator = calibrator.model_copy(update=resolved)
    return config.model_copy(update={"calibrator": calibrator})


def _recalibrated_from(section: Corrected, folder: Path) -> Corrected:
    """Return a copy with the paths of recalibrations below `folder`; the same if it has none."""
    if not section.recalibration:
        return section
    paths = tuple(folder / each for each in section.recalibration)
    return section.model_copy(update={"recalibration": paths})


def load_config_policy(config: Config, path: Path | None, override: str | None = None) -> Policy:
    """Return the policy that applies; see `load_policy_of`. `path` is the configuration's file.

    `override` replaces the name in the configuration. Raises InvalidDocumentError.
    """
    return load_policy_of(path.parent if path else Path(), override or config.policies)


def load_policy_of(folder: Path, name: str) -> Policy:
    """Load the policy in the file `folder / name`, else the pack or path that `name` is."""
    path = folder / name
    return load_policy(str(path) if path.is_file() else name)


def _prepare_values(value: dict[str, Any]) -> dict[str, Any]:
    """Return the sections without null ones, some lists (`models`, `webhooks` ..) as tuples."""
    return {
        key: tuple(item)
        if key in ("models", "webhooks", "shared_ids") and isinstance(item, list)
        else item
        for key, item in value.items()
        if item is not None
    }


def _keys_at(loc: tuple[str | int, ...]) -> list[str]:
    """Return the keys known in the section at `loc`, such as `("limits",)`; () is the file."""
    if tuple(loc[:2]) == ("calibrator", "engine") and len(loc) > 2:
        return list(ENGINES[str(loc[2])].model_fields)
    section: type[Section] = Config
    places = iter(loc)
    for place in places:
        if (field := section.model_fields.get(str(place))) is None:
            continue  # the number of an entry in a list
        if (subsection := _section_in(field.annotation)) is None:
            break
        section = subsection
        if get_origin(field.annotation) is dict:
            next(places, None)  # the name of an entry, which may be that of a key too
    return list(section.model_fields)


def _section_in(annotation: Any) -> type[Section] | None:
    """Return the section class that a key, or each entry under it, has; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)
