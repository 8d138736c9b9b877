"""`pinocchio doctor`: whether all that a proxy needs exists and works, a line for each part."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import typer

from policies import plural
from proxy.commands.checkup.upstreams import (
    UPSTREAM_S,
    Diagnosis,
    Level,
    Patient,
    check_upstreams,
)
from proxy.commands.opening.exits import DEFAULT_HOST, DEFAULT_PORT, ConfigOption, plain, stop
from proxy.commands.opening.opened_record import JsonOption
from proxy.errors import ExitStatus, ProxyError, StartupError, StoreError

if TYPE_CHECKING:
    from calibrator import Recalibrations, Scorer
    from proxy.config.settings.telemetry import OtelConfig

COLORS: Final = {"ok": "green", "skip": "bright_black", "warn": "yellow", "fail": "red"}
MOST_SKEW_S: Final = 5.0  # more is a warning; keys, holds and certificates depend on the clock
SOON_S: Final = 7 * 86_400.0  # a key that expires earlier is a warning
LEAST_FREE: Final = 2**30  # bytes of disk
NEARLY: Final = 0.9  # of a limit
CANARY: Final = ("What is the capital of France?", "The capital of France is Paris.")
SAME: Final = 0.01  # the largest difference of two scores of one text, in half precision


def doctor(
    config: ConfigOption = None,
    url: Annotated[
        str, typer.Option(help="Where the proxy listens, if it runs already.")
    ] = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}",
    calibrator: Annotated[
        bool, typer.Option("--calibrator/--no-calibrator", help="Also load it and score a text.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Check the installation, one line per part; exit status 1 if a part fails.

    Nothing is changed, and no model is asked: upstreams are asked for their list of models.
    """
    findings = []
    for finding in examine(config, url, scores=calibrator):
        findings.append(finding)
        if not as_json:
            level = typer.style(f"{finding.level:<5}", fg=COLORS[finding.level])
            typer.echo(f"{level} {finding.about:<22} {plain(finding.text)}")
    failed = [each for each in findings if each.level == "fail"]
    if as_json:
        values = [asdict(each) for each in findings]
        typer.echo(json.dumps({"is_well": not failed, "findings": values}))
    if failed:
        parts = plural(len(failed), "part")
        raise stop(ExitStatus.FAILED, f"{parts} failed: {', '.join(f.about for f in failed)}")


def examine(config: Path | None, url: str, *, scores: bool = True) -> Iterator[Diagnosis]:
    """Yield a finding for each part of the installation, in the order of the command's lines.

    Where the configuration cannot be used, only findings about it are yielded. `url` is where the
    proxy listens, if it runs; without `scores` the calibrator is not loaded.
    """
    from proxy.config.setup import load_setup
    from proxy.startup.startup import check_setup, with_files

    try:
        setup = load_setup(config)
        check_setup(setup, DEFAULT_HOST)
        setup = with_files(setup)
    except StartupError as error:
        for line in str(error).splitlines():
            yield Diagnosis("fail", "configuration", line)
        return
    upstreams = plural(len(setup.config.upstreams), "upstream")
    policy = setup.policy
    text = f"{setup.path or 'built in'}: policy {policy.name} ({policy.mode}), {upstreams}"
    yield Diagnosis("ok", "configuration", text)
    patient = Patient(setup, url)
    checks: list[Callable[[Patient], Iterable[Diagnosis]]] = [_policies, check_upstreams]
    checks += [_scorer, _gpu] if scores else []
    checks += [_workers, _store, _clock, _limits, _keys, _certificates, _oidc, _telemetry, _proxy]
    for check in checks:
        try:
            yield from check(patient)
        except StoreError as error:
            yield Diagnosis("fail", "store", error.message)


def _policies(patient: Patient) -> Iterator[Diagnosis]:
    """Yield the warnings about policies: equal names, and what `check` warns of."""
    from policies import lint

    for text in patient.setup.book.namesakes():
        yield Diagnosis("warn", "policies", text)
    for policy in patient.setup.book:
        for warning in lint(policy):
            yield Diagnosis("warn", f"policy {policy.name}", str(warning))


# --- the calibrator -------------------------------------------------------------------------------


def _scorer(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether the calibrator, and its stand-in, score the canary twice alike."""
    from proxy.scoring.loader import scorer_loader, stand_in_loader

    setup = patient.setup
    section = setup.config.calibrator
    if (load := scorer_loader(section)) is None:
        yield Diagnosis("skip", "calibrator", "none: replies get no number")
        return
    result = try_calibrator(load, section.summary, setup.recalibrations)
    patient.calibrator, patient.calibrator_bytes = result.name, result.memory
    yield Diagnosis(result.level, "calibrator", result.text)
    if (facts := setup.facts) is not None:
        yield Diagnosis("ok", "facts", f"{facts.path}: {plural(facts.count, 'entry', 'entries')}")
    if section.stand_in is not None and (load := stand_in_loader(section)) is not None:
        result = try_calibrator(load, section.stand_in.checkpoint, setup.of_stand_in)
        yield Diagnosis(result.level, "stand-in", result.text)


class CanaryResult(NamedTuple):
    """The result of a canary; `name` is that of its numbers, `memory` is in bytes."""

    level: Literal["ok", "fail"]
    text: str
    name: str | None = None
    memory: int | None = None


def try_calibrator(
    load: Callable[[], Scorer], place: str, recalibrations: Recalibrations | None
) -> CanaryResult:
    """Load a calibrator, score the canary twice, close the calibrator, and return the result.

    `place` names it in a failure, and `recalibrations` are its own. Errors are returned as a
    failure.
    """
    from calibrator import CalibratorError
    from proxy.commands.checkup.machine import resident_memory
    from proxy.scoring.scores import name_with

    gc.collect()  # memory freed meanwhile would distort the calibrator's own
    began, before = time.perf_counter(), resident_memory()
    try:
        scorer = load()
        loaded_s = time.perf_counter() - began
        try:
            is_well, canary_text = _score_twice(scorer)
            memory = max(0, resident_memory() - before)  # measured before the scorer is closed
        finally:
            if (close := getattr(scorer, "close", None)) is not None:
                close()
    except (CalibratorError, StartupError, OSError) as error:
        return CanaryResult("fail", f"{place}: {error}")
    name = name_with(scorer.name, recalibrations)
    text = f"{name}: {canary_text}, loaded in {loaded_s:.1f} s"
    if kernel := getattr(scorer, "kernel", None):  # of the embedded one; it may not be built here
        text += f", kernel: {kernel}"
    return CanaryResult("ok" if is_well else "fail", text, name, memory)


def _score_twice(scorer: Scorer) -> tuple[bool, str]:
    """Return whether the canary gets the same probability (to 0.01) twice, and a sentence."""
    from calibrator import Item

    scorer.score_batch([Item(*CANARY)])  # a warm-up, for the first one takes longest
    began = time.perf_counter()
    [first] = scorer.score_batch([Item(*CANARY)])
    passed_ms = (time.perf_counter() - began) * 1_000
    [second] = scorer.score_batch([Item(*CANARY)])
    one, other = first.confidence, second.confidence
    if not (math.isfinite(one) and 0 <= one <= 1):
        return False, f"a canary got {one}, which is no probability"
    if not abs(one - other) <= SAME:
        return False, f"a canary got {one:.4f}, and then {other:.4f}"
    return True, f"the canary got {one:.4f} in {passed_ms:.0f} ms"


def _gpu(patient: Patient) -> Iterator[Diagnosis]:
    """Yield how to score with the paper's model, where an idle GPU and its extra exist."""
    from calibrator import ON_A_GPU, has_gpu_and_torch, torch_sees_gpu

    if patient.setup.config.calibrator.summary != "embedded" or not has_gpu_and_torch():
        return
    if torch_sees_gpu():
        yield Diagnosis("ok", "gpu", f"idle: {ON_A_GPU}")
    else:
        yield Diagnosis("skip", "gpu", "torch cannot use it: another build of torch, or its driver")


# --- the machine ----------------------------------------------------------------------------------


def _workers(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether the cores and the memory suit the number of processes."""
    from proxy.commands.checkup.machine import Machine, Processes
    from proxy.scoring.loader import can_be_forked, shares_scorer

    config = patient.setup.config
    processes = Processes(
        config.workers.count,
        patient.calibrator_bytes,
        has_scorer=shares_scorer(config),
        is_forked=can_be_forked(config.calibrator.checkpoint),
    )
    level, text = Machine.here().suits(processes)
    yield Diagnosis(level, "workers", text)


# --- what is kept ---------------------------------------------------------------------------------


def _store(patient: Patient) -> Iterator[Diagnosis]:
    """Yield findings on the database, and on its disk (SQLite) or its chain's key (PostgreSQL).

    A reply is held and removed again as a trial, if the tables are this version's.
    """
    from proxy.store.condition import condition_of, try_to_hold
    from proxy.store.database.chain import KEY_VARIABLE, chain_key
    from proxy.store.database.tables import path_of, place_of

    url = patient.setup.config.store
    path = path_of(url)
    try:
        condition = condition_of(url)
        place = place_of(url)
        if condition.state == "current":
            try_to_hold(url)
        patient.store = condition
    except StoreError as error:
        yield Diagnosis("fail", "store", error.message)
        return
    if condition.skew_s is not None:
        patient.skews_s["the database"] = condition.skew_s
    state_text = {
        "missing": "the start will make it",
        "empty": "empty; the start will make its tables",
        "older": "of an older version; the start will bring it up to date",
        "current": f"can be read, and holds replies ({condition.latency_s * 1_000:.0f} ms)",
    }[condition.state]
    yield Diagnosis("ok", "store", f"{place}: {state_text}")
    if path is not None:
        yield _disk(path.resolve().parent)
    elif chain_key(url) is None:
        text = f"off: set {KEY_VARIABLE}, else nobody can tell whether rows were changed"
        yield Diagnosis("warn", "audit chain", text)


def _disk(folder: Path) -> Diagnosis:
    """Return a finding on the free space of a folder's disk; below 1 GiB is a warning."""
    free = shutil.disk_usage(folder).free
    level: Level = "ok" if free >= LEAST_FREE else "warn"
    return Diagnosis(level, "disk", f"{free / 2**30:.1f} GB free in {folder}")


def _clock(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether this machine's clock agrees with the upstreams' (HTTP dates: whole seconds)."""
    if not patient.skews_s:
        yield Diagnosis("skip", "clock", "nobody to compare it with: no upstream told its own")
        return
    server = min(patient.skews_s, key=lambda name: abs(patient.skews_s[name]))
    behind_s = patient.skews_s[server]
    if abs(behind_s) <= MOST_SKEW_S:
        yield Diagnosis("ok", "clock", f"agrees with that of {server} to {MOST_SKEW_S:g} s")
        return
    direction = "behind" if behind_s > 0 else "ahead of"
    text = f"{abs(behind_s):.0f} s {direction} that of {server}"
    yield Diagnosis("warn", "clock", f"{text}: holds and keys expire by this clock")


def _limits(patient: Patient) -> Iterator[Diagnosis]:
    """Yield findings on open files, and on the number of held replies if the store is there."""
    from proxy.http.listener.open_files import connections_for, raise_file_limit

    limits = patient.setup.config.limits
    files = raise_file_limit()  # raised as a proxy does
    room, maximum = connections_for(files), limits.max_connections
    if maximum is not None and maximum > room:
        text = (
            f"limits.max_connections is {maximum:,}, and {files:,} open files have room for "
            f"{room:,}: raise the limit (ulimit -n, LimitNOFILE)"
        )
        yield Diagnosis("warn", "limits", text)
    else:
        room_text = plural(maximum or room, "connection")
        yield Diagnosis("ok", "limits", f"{files:,} open files: room for {room_text}")
    if not _is_current(patient):
        return
    from proxy.store.queue import ReviewQueue

    queue = ReviewQueue(patient.setup.config.store)
    try:
        held = sum(row["count"] for row in queue.open_counts() if row["kind"] == "hold")
    finally:
        queue.close()
    level: Level = "warn" if held >= NEARLY * limits.max_held else "ok"
    replies = plural(held, "held reply", "held replies")
    yield Diagnosis(level, "review queue", f"{replies}, {limits.max_held:,} may wait")


def _is_current(patient: Patient) -> bool:
    """Return whether the store has this version's tables, without opening it for a change."""
    return patient.store is not None and patient.store.state == "current"


def _keys(patient: Patient) -> Iterator[Diagnosis]:
    """Yield findings on client keys: broken, soon to expire, or none where they are required."""
    from proxy.config.setup import problems_of
    from proxy.store.database.client_keys import KeyStore

    setup, now = patient.setup, time.time()
    if not setup.config.needs_keys:
        yield Diagnosis("ok", "keys", "open: whoever reaches the proxy may ask")
        return
    if patient.store is None:
        yield Diagnosis("skip", "keys", "required; the store that has them cannot be asked")
        return
    if not _is_current(patient):
        yield Diagnosis("warn", "keys", "required, and none is made yet: pinocchio keys create")
        return
    store = KeyStore(setup.config.store)
    try:
        active = [key for key in store.all() if key.state(now) == "active"]
    finally:
        store.close()
    for problem in problems_of(active, setup):
        yield Diagnosis("fail", "keys", problem)
    callers = [key for key in active if key.role == "caller"]
    if not callers:
        yield Diagnosis("warn", "keys", "required, and no app has one: pinocchio keys create")
        return
    expiring = [key.id for key in callers if key.expires_at and key.expires_at - now < SOON_S]
    if expiring:
        text = f"{plural(len(expiring), 'key')} will expire within a week: {', '.join(expiring)}"
        yield Diagnosis("warn", "keys", text)
    yield Diagnosis("ok", "keys", f"{plural(len(callers), 'app')} may ask")


def _certificates(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether the certificates of policies with `max_error` are valid for the calibrator."""
    certified = [policy for policy in patient.setup.book if policy.certificate_path is not None]
    withdrawn = _withdrawn_calibrators(patient) if certified else frozenset()
    for policy in certified:
        about, path = f"certificate {policy.name}", policy.certificate_path
        grants = policy.certificate.grants if policy.certificate else ()
        if not grants:
            text = f"{path} has none: rules with max_error match nothing"
            yield Diagnosis("warn", about, text)
            continue
        revoked = [grant for grant in grants if grant.digest in withdrawn]
        names = sorted({grant.calibrator for grant in grants})
        if revoked:
            text = f"{len(revoked)} of {plural(len(grants), 'grant')} withdrawn: certify again"
            yield Diagnosis("warn", about, text)
        elif patient.calibrator is not None and patient.calibrator not in names:
            yield Diagnosis(
                "warn", about, f"it is for {', '.join(names)}, not {patient.calibrator}"
            )
        else:
            yield Diagnosis("ok", about, f"{plural(len(grants), 'grant')} for {', '.join(names)}")


def _withdrawn_calibrators(patient: Patient) -> frozenset[str]:
    """Return the digests of all withdrawn grants; empty without this version's tables."""
    from proxy.store.database.verdicts import VerdictStore

    if not _is_current(patient):
        return frozenset()
    findings = VerdictStore(patient.setup.config.store)
    try:
        return frozenset(each.grant_digest for each in findings.withdrawals())
    finally:
        findings.close()


def _oidc(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether the configured OpenID issuer answers, so that people could log in."""
    admin = patient.setup.config.admin
    if not admin.enabled or admin.oidc is None:
        return
    from proxy.desk.access.issuer import checked_issuer

    try:
        keys = asyncio.run(checked_issuer(admin.oidc))
        text = f"{admin.oidc.issuer}: it answers, and has {plural(keys, 'key')}"
        yield Diagnosis("ok" if keys else "fail", "oidc", text)
    except ProxyError as error:
        yield Diagnosis("fail", "oidc", error.message)


def _telemetry(patient: Patient) -> Iterator[Diagnosis]:
    """Yield whether the receivers of telemetry answer; a project without traces may not exist."""
    from proxy.optional.scores.scores import UnreadableScoresError, score_keepers

    config = patient.setup.config.telemetry
    if config.otel is not None:
        yield _collector(config.otel)
    for keeper in score_keepers(config):
        try:
            keeper.probe()
            yield Diagnosis("ok", keeper.name, "it answers")
        except UnreadableScoresError as error:
            yield Diagnosis("fail", keeper.name, str(error).splitlines()[0])
        finally:
            keeper.close()


def _collector(config: OtelConfig) -> Diagnosis:
    """Return the finding on a collector of traces, after an empty request to it."""
    import httpx

    from calibrator import install_command

    if find_spec("opentelemetry.exporter") is None:
        return Diagnosis("fail", "otel", f"its libraries are missing: {install_command('otel')}")
    headers = {name: secret.get_secret_value() for name, secret in config.headers.items()}
    headers["content-type"] = "application/x-protobuf"
    url = f"{config.endpoint}/v1/traces"
    try:
        answer = httpx.post(url, headers=headers, content=b"", timeout=UPSTREAM_S)
    except httpx.HTTPError as error:
        return Diagnosis("fail", "otel", f"{url}: {error or type(error).__name__}")
    level: Level = "ok" if answer.is_success else "fail"
    return Diagnosis(level, "otel", f"{url}: status {answer.status_code}")


# --- the proxy ------------------------------------------------------------------------------------


def _proxy(patient: Patient) -> Iterator[Diagnosis]:
    """Yield what the running proxy reports at `/readyz`."""
    import httpx

    about = "running proxy"
    try:
        answer = httpx.get(f"{patient.url.rstrip('/')}/readyz", timeout=UPSTREAM_S, trust_env=False)
        facts = answer.json()
        status, generation = facts["status"], facts["generation"]
        calibrator, files = facts["calibrator"], facts["configuration"]
        workers = facts.get("workers") or {"wanted": 1, "running": 1}
        missing = workers["wanted"] - workers["running"]
    except httpx.ConnectError:
        yield Diagnosis("skip", about, f"none at {patient.url}; --url finds one at another --port")
        return
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        wrong = (
            f"the desk or another server is at {patient.url}: it does not answer as a proxy does"
        )
        yield Diagnosis("fail", about, wrong)
        return
    if files != "current":
        text = "it refuses what the files say, and goes on with the configuration before"
        yield Diagnosis("fail", about, text)
    elif status != "ok":
        yield Diagnosis("warn", about, f"{patient.url}: its calibrator is still loading")
    elif missing:
        text = f"{missing} of {workers['wanted']} workers are not there; its log says why"
        yield Diagnosis("warn", about, f"{patient.url}: {text} (worker_died)")
    else:
        text = f"{patient.url}: ready, generation {generation}, calibrator {calibrator or 'none'}"
        yield Diagnosis("ok", about, text)
