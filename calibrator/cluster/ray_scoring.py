"""Files of millions of rows scored by Ray Data, on one machine or on a cluster.

Readers cut files into parts; actors, each with the calibrator loaded once, score them and write
what `parts` describes; the driver hears how far they are and puts the output together. Data in
flight is bounded by Ray's object store. What a lost actor or machine had in hand is read and
scored again by others.

What cannot be mended by trying again (a checkpoint that is not there, a folder that another machine
does not see) travels to the driver as a sentence, in the column `failure`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calibrator.checkpoints.checkpoint import EMBEDDED
from calibrator.errors import CalibratorError, ClusterError, MissingExtraError
from calibrator.loading import check_checkpoint, checkpoint_card, load_scorer, version_of
from calibrator.rows.shards import Part, Run, cut
from calibrator.scorer import Scorer

try:
    import pyarrow as pa
    import ray
    from ray.data import ActorPoolStrategy, Dataset, TaskPoolStrategy
    from ray.exceptions import RayError
except ModuleNotFoundError as missing:
    raise MissingExtraError(missing.name or "ray", "ray") from missing

LOCAL = "local"
LOCAL_STORE_BYTES = 256 * 2**20
REACH_S = 5
READERS = 4  # at once; one reads and unpacks many times faster than a machine scores


@dataclass(frozen=True, slots=True)
class Calibrating:
    """The calibrator that each actor loads, on a GPU or on a core of its own."""

    name: str
    device: str = "auto"
    recalibration: Path | None = None

    def resource(self, has_gpus: bool) -> str:
        """What each actor takes one of, in Ray's words; `auto` is a GPU for language models."""
        if self.device == "auto" and has_gpus:
            card = checkpoint_card(self.name) or {}
            return "CPU" if card.get("architecture", EMBEDDED) == EMBEDDED else "GPU"
        return "GPU" if self.device.startswith("cuda") else "CPU"

    @classmethod
    def told(cls, name: str, device: str, recalibration: Path | None) -> Calibrating:
        """With paths that hold wherever an actor is started."""
        if name != EMBEDDED and (folder := Path(name).expanduser()).is_dir():
            name = str(folder.absolute())
        return cls(name, device, recalibration and recalibration.absolute())

    def version(self) -> str:
        """The name that its scores will have; raises CalibratorError. Loads no weights."""
        check_checkpoint(self.name, self.recalibration)
        version = version_of(self.name)
        if self.recalibration is None:
            return version
        from calibrator.recalibration.versions import resolve_recalibrations

        found = resolve_recalibrations(self.recalibration).alone
        return version if found is None else f"{version}+{found.name}"

    def load(self) -> Scorer:
        return load_scorer(self.name, self.device, threads=1, recalibration=self.recalibration)


def score_files(
    run: Run,
    calibrating: Calibrating,
    *,
    address: str = "",
    actors: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Scores what is not done yet of a run.

    `address` is a cluster's; without one, there is one on this machine for the time. `actors` is
    one for each core (or GPU) of the cluster unless told. `progress` hears of rows that are done.
    Raises ClusterError.
    """
    with connected(address):
        resource = calibrating.resource(has_gpus=_count("GPU") > 0)
        if not (room := actors or _count(resource)):
            raise ClusterError(
                f"the cluster has no {resource} now; --actors says how many to await"
            )
        try:
            for summary in _dataset(run, calibrating, resource, room).iter_rows():
                if summary["failure"]:
                    raise ClusterError(summary["failure"])
                progress(summary["rows"])
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]  # behind a traceback of the actor's
            raise ClusterError(f"scoring on Ray failed: {reason}") from error


def _dataset(run: Run, calibrating: Calibrating, resource: str, actors: int) -> Dataset:
    """A row for each part, once its file is there: how many rows it has, or a failure."""
    # What is done is told once and for all: a reader that is started again must cut as before.
    files = [{"source": n, "done": done} for n, done in enumerate(run.done())]
    dataset = ray.data.from_items(files, override_num_blocks=len(files))
    context = dataset.context
    context.target_max_block_size = 1  # a part is a block, the unit of work; none are put together
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    parts = dataset.map_batches(
        partial(read_parts, run),
        batch_size=1,
        batch_format="pyarrow",
        compute=TaskPoolStrategy(size=min(READERS, len(files))),
        num_cpus=0,  # actors hold all cores
    )
    return parts.map_batches(
        PartScorer,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_kwargs={"run": run, "calibrating": calibrating},
        compute=ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
        num_cpus=1 if resource == "CPU" else 0,
        num_gpus=1 if resource == "GPU" else None,
    )


def read_parts(run: Run, files: pa.Table) -> Iterator[pa.Table]:
    """The parts of a file that are not done, a table each."""
    for file in files.to_pylist():
        path = run.files[file["source"]]
        try:
            for part in cut(path, file["source"], file["done"]):
                yield _table({**asdict(part), "failure": ""})
        except OSError as error:
            yield _table({**asdict(Part(file["source"], 0, 1, b"", True)), "failure": _here(error)})


class PartScorer:
    """An actor: the calibrator, loaded once."""

    def __init__(self, run: Run, calibrating: Calibrating) -> None:
        self._run = run
        self._scorer: Scorer | None = None
        self._failure = ""
        try:
            run.check_folder()
            self._scorer = scorer = calibrating.load()
            if scorer.name != run.calibrator:
                raise ClusterError(f"the calibrator is {scorer.name}, not {run.calibrator}")
        except (CalibratorError, OSError) as error:
            self._failure = _here(error)

    def __call__(self, parts: pa.Table) -> pa.Table:
        (values,) = parts.to_pylist()
        failure = values.pop("failure") or self._failure
        if failure or self._scorer is None:
            return _table({"rows": 0, "failure": failure})
        try:
            summary = self._run.score(Part(**values), self._scorer)
        except (CalibratorError, OSError) as error:
            return _table({"rows": 0, "failure": _here(error)})
        return _table({"rows": summary.rows, "failure": ""})


def _here(error: Exception) -> str:
    place = socket.gethostname()
    return f"{error} (on {place}; every machine must see the same files, folders and checkpoint)"


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A driver of the cluster at `address`, or of one of this machine's for the time.

    Raises ClusterError where there is none.
    """
    if ray.is_initialized():
        yield
        return
    _quieten()
    try:
        _check_reachable(address)
        ray.init(
            address or LOCAL,
            object_store_memory=None if address else LOCAL_STORE_BYTES,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ClusterError(f"Ray at {address or LOCAL!r} cannot be used: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises OSError where nobody listens, which Ray itself notices after minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()


def _quieten() -> None:
    """No word of Ray's on the way to stderr but errors; its log files have the rest."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for handler in logging.getLogger("ray.data").handlers:
        if handler.name == "console":
            handler.setLevel(logging.ERROR)


def _count(resource: str) -> int:
    """How many of these the cluster has now."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
    return int(resources.get(resource, 0))


def _table(values: dict[str, Any]) -> pa.Table:
    """One row: what Ray's blocks are made of."""
    return pa.Table.from_pylist([values])
