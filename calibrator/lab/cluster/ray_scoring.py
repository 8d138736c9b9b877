"""Scoring of files with millions of rows by Ray Data, on one machine or on a cluster.

Readers cut files into parts. Actors, each with the calibrator loaded once, score the parts and
write the files that `parts` describes. The driver receives their progress and assembles the
output. Ray's object store bounds the data in flight. The parts of a lost actor or machine are read
and scored again by others.

Errors that a retry cannot mend (a missing checkpoint, a folder that another machine does not see)
travel to the driver as a sentence, in the column `failure`.
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
from calibrator.rows.shards import Part, ShardRun, cut
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
READERS = 4  # at a time; one reads and unpacks many times faster than a machine scores


@dataclass(frozen=True, slots=True)
class ActorCalibrator:
    """The calibrator that each actor loads, on its own GPU or core."""

    name: str
    device: str = "auto"
    recalibration: Path | None = None

    def resource(self, has_gpus: bool) -> str:
        """Return the Ray resource that each actor takes one of: `CPU` or `GPU`.

        The device `auto` is a GPU for language models where the cluster has GPUs.
        """
        if self.device == "auto" and has_gpus:
            card = checkpoint_card(self.name) or {}
            return "CPU" if card.get("architecture", EMBEDDED) == EMBEDDED else "GPU"
        return "GPU" if self.device.startswith("cuda") else "CPU"

    @classmethod
    def with_absolute_paths(
        cls, name: str, device: str, recalibration: Path | None
    ) -> ActorCalibrator:
        """Return one with absolute paths, which hold wherever an actor starts."""
        if name != EMBEDDED and (folder := Path(name).expanduser()).is_dir():
            name = str(folder.absolute())
        return cls(name, device, recalibration and recalibration.absolute())

    def version(self) -> str:
        """Return the name of its scores, without loading weights. Raises CalibratorError."""
        check_checkpoint(self.name, self.recalibration)
        version = version_of(self.name)
        if self.recalibration is None:
            return version
        from calibrator.recalibration.versions import resolve_recalibrations

        found = resolve_recalibrations(self.recalibration).alone
        return version if found is None else f"{version}+{found.name}"

    def load(self) -> Scorer:
        """Load the calibrator."""
        return load_scorer(self.name, self.device, threads=1, recalibration=self.recalibration)


def score_files(
    run: ShardRun,
    calibrating: ActorCalibrator,
    *,
    address: str = "",
    actors: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Score the parts of a run that are not done yet.

    `address` is a cluster's; without one, a temporary cluster runs on this machine. `actors` is the
    number of actors; 0 is one for each core (or GPU) of the cluster. `progress` is called with the
    number of rows of each finished part. Raises ClusterError.
    """
    with ray_connection(address):
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
            reason = str(error).strip().splitlines()[-1]  # it follows the actor's traceback
            raise ClusterError(f"scoring on Ray failed: {reason}") from error


def _dataset(run: ShardRun, calibrating: ActorCalibrator, resource: str, actors: int) -> Dataset:
    """Return a dataset with a row for each finished part: its number of rows, or its failure."""
    # The finished parts are fixed here, since a restarted reader must cut as before.
    files = [{"source": n, "done": done} for n, done in enumerate(run.finished_parts())]
    dataset = ray.data.from_items(files, override_num_blocks=len(files))
    context = dataset.context
    context.target_max_block_size = 1  # bytes; each part stays a block, the unit of work
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


def read_parts(run: ShardRun, files: pa.Table) -> Iterator[pa.Table]:
    """Yield a table for each part of the files that is not done."""
    for file in files.to_pylist():
        path = run.files[file["source"]]
        try:
            for part in cut(path, file["source"], file["done"]):
                yield _table({**asdict(part), "failure": ""})
        except OSError as error:
            yield _table(
                {**asdict(Part(file["source"], 0, 1, b"", True)), "failure": _name_machine(error)}
            )


class PartScorer:
    """An actor with the calibrator, loaded once."""

    def __init__(self, run: ShardRun, calibrating: ActorCalibrator) -> None:
        self._run = run
        self._scorer: Scorer | None = None
        self._failure = ""
        try:
            run.check_folder()
            self._scorer = scorer = calibrating.load()
            if scorer.name != run.calibrator:
                raise ClusterError(f"the calibrator is {scorer.name}, not {run.calibrator}")
        except (CalibratorError, OSError) as error:
            self._failure = _name_machine(error)

    def __call__(self, parts: pa.Table) -> pa.Table:
        (values,) = parts.to_pylist()
        failure = values.pop("failure") or self._failure
        if failure or self._scorer is None:
            return _table({"rows": 0, "failure": failure})
        try:
            summary = self._run.score(Part(**values), self._scorer)
        except (CalibratorError, OSError) as error:
            return _table({"rows": 0, "failure": _name_machine(error)})
        return _table({"rows": summary.rows, "failure": ""})


def _name_machine(error: Exception) -> str:
    place = socket.gethostname()
    return f"{error} (on {place}; every machine must see the same files, folders and checkpoint)"


@contextmanager
def ray_connection(address: str) -> Iterator[None]:
    """Connect to the cluster at `address`, or start one on this machine, until the block ends.

    An existing connection is used and kept. Raises ClusterError where there is no cluster.
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
    """Raise OSError where nobody listens, which Ray itself notices only after minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()


def _quieten() -> None:
    """Keep all of Ray's messages but errors from stderr; its log files have the rest."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for handler in logging.getLogger("ray.data").handlers:
        if handler.name == "console":
            handler.setLevel(logging.ERROR)


def _count(resource: str) -> int:
    """Return how many of a resource the cluster has now."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
    return int(resources.get(resource, 0))


def _table(values: dict[str, Any]) -> pa.Table:
    """Return a table of one row, as Ray's blocks are."""
    return pa.Table.from_pylist([values])
