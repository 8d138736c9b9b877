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
    """The calibrator that each actor loads, on its own GPU or core.

    `name` is a checkpoint's name or folder, `device` `auto`, `cpu` or `cuda`, and `recalibration`
    the file of a recalibration to apply, or None.
    """

    name: str
    device: str = "auto"
    recalibration: Path | None = None

    def resource(self, has_gpus: bool) -> str:
        """Return the Ray resource that each actor takes one of: `CPU` or `GPU`.

        It is `GPU` for a device that begins with `cuda`, and for `auto` where the cluster has GPUs
        and the checkpoint is a language model (its card names an architecture other than the
        embedded one); else `CPU`.
        """
        if self.device == "auto" and has_gpus:
            card = checkpoint_card(self.name) or {}
            return "CPU" if card.get("architecture", EMBEDDED) == EMBEDDED else "GPU"
        return "GPU" if self.device.startswith("cuda") else "CPU"

    @classmethod
    def with_absolute_paths(
        cls, name: str, device: str, recalibration: Path | None
    ) -> ActorCalibrator:
        """Return a calibrator whose paths are absolute, so that they hold wherever an actor starts.

        A `name` that is an existing folder becomes its absolute path, with `~` expanded; any other
        name is kept. A `recalibration` of None stays None.
        """
        if name != EMBEDDED and (folder := Path(name).expanduser()).is_dir():
            name = str(folder.absolute())
        return cls(name, device, recalibration and recalibration.absolute())

    def version(self) -> str:
        """Return the name that its scores carry, without loading weights.

        It is such as `NAME` or, with a recalibration, `NAME+RECALIBRATION`. Raises CalibratorError
        where the checkpoint or the recalibration cannot be used.
        """
        check_checkpoint(self.name, self.recalibration)
        version = version_of(self.name)
        if self.recalibration is None:
            return version
        from calibrator.recalibration.versions import resolve_recalibrations

        found = resolve_recalibrations(self.recalibration).alone
        return version if found is None else f"{version}+{found.name}"

    def load(self) -> Scorer:
        """Load the calibrator with its weights onto the device, and return it as a scorer."""
        return load_scorer(self.name, self.device, threads=1, recalibration=self.recalibration)


def score_files(
    run: ShardRun,
    calibrating: ActorCalibrator,
    *,
    address: str = "",
    actors: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Score the parts of a run that are not done yet on Ray, and write their files.

    `address` is a cluster's, such as `host:6379`; without one, a temporary cluster runs on this
    machine. `actors` is the number of actors; 0 is one for each core (or GPU) of the cluster.
    `progress` is called with the number of rows of each finished part. Raises ClusterError where
    the cluster cannot be reached or has no such resource, and for the first part that fails.
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
    """Return a lazy dataset with a row for each finished part: `{"rows": 12, "failure": ""}`.

    Iterating over it reads the unfinished parts (`read_parts`) and scores them (`PartScorer`).
    `failure` is the error's text for a part that failed, which then has 0 rows. `resource` is `CPU`
    or `GPU`, of which each of at most `actors` actors takes one.
    """
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
    """Yield a table of one row for each part of the files that is not done.

    `files` has the columns `source` (the file's index in the run) and `done` (the numbers of its
    finished parts). A table's columns are those of `Part` and `failure`, which is empty, or the
    error of a file that cannot be read; that file ends with it, and the others go on.
    """
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
    """An actor that loads the calibrator once and scores one part at each call.

    A failure to load it is kept, and is the answer to every part.
    """

    def __init__(self, run: ShardRun, calibrating: ActorCalibrator) -> None:
        """Check the run's folder and load the calibrator; an error becomes each part's `failure`.

        It is an error too if the loaded calibrator's name is not the one that the run states.
        """
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
        """Score a part, write its file, and return a table of one row with `rows` and `failure`.

        `parts` has one row, as `read_parts` yields it. `rows` is 0 where it failed; `failure` is
        then the error's text, else empty.
        """
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
    """Return the error's text, followed by this machine's host name.

    A reminder follows that every machine must see the same files, folders and checkpoint.
    """
    place = socket.gethostname()
    return f"{error} (on {place}; every machine must see the same files, folders and checkpoint)"


@contextmanager
def ray_connection(address: str) -> Iterator[None]:
    """Connect to the cluster at `address`, or start one on this machine, until the block ends.

    An empty `address` starts a local cluster. An existing connection of this process is used and
    kept; others are shut down at the end. Raises ClusterError where there is no cluster.
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
    """Raise OSError where nobody listens at `host:port`, which Ray notices only after minutes.

    An address of another form, such as `ray://host:1` or `auto`, is not checked.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()


def _quieten() -> None:
    """Keep all messages of `ray.data` but errors from stderr; its log files have the rest.

    It also turns off Ray's usage statistics, unless the environment sets them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for handler in logging.getLogger("ray.data").handlers:
        if handler.name == "console":
            handler.setLevel(logging.ERROR)


def _count(resource: str) -> int:
    """Return how many of a resource, `CPU` or `GPU`, the whole cluster has; 0 for none."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
    return int(resources.get(resource, 0))


def _table(values: dict[str, Any]) -> pa.Table:
    """Return an Arrow table of one row, with the keys of `values` as columns."""
    return pa.Table.from_pylist([values])
