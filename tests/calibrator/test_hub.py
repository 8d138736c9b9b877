"""Models by name: downloaded once, then used offline, always in the same revision (G02)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calibrator.checkpoints.hub import is_hub_name
from tests.builders.tiny_models import OfFamily, write_tiny_adapter
from tests.running.warm_cli import ROOT, Program, run_warm
from tests.servers.model_hub import ModelHub, Repository

NAME = "KevinDavidHayes/pinocchio-0.8b"
BASE = "Qwen/Qwen3.5-0.8B"
SCORE = (
    "import sys; from pinocchio import Pinocchio\n"
    "judge = Pinocchio(sys.argv[1], device='cpu')\n"
    "print(judge.name, judge.score(question='2+2?', answer='4'))"
)
BEGINNING = (
    "import sys; from calibrator.lab.training.llm.config import LlmTrainConfig, find_start\n"
    "find_start(LlmTrainConfig(data=(), base=sys.argv[1]))"
)
VERSION = "import sys; from calibrator import version_of; print(version_of(sys.argv[1]))"


@pytest.fixture(scope="module")
def hub(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelHub]:
    """Yield a hub with the released adapter and its base, as tiny models under their names."""
    folder = tmp_path_factory.mktemp("hub")
    with ModelHub() as hub:
        hub.repositories = {NAME: Repository(), BASE: Repository()}
        adapter = {"rank": 16, "alpha": 32}
        for seed in (1, 2):
            made = write_tiny_adapter(
                folder / str(seed), tiny_bases("qwen3_5"), seed=seed, adapter=adapter
            )
            (made / "calibrator.json").unlink()  # the authors' repository has none
            (made / "training_args.bin").write_bytes(b"a pickle")
            hub.repositories[NAME].commit(made)
        hub.repositories[BASE].commit(tiny_bases("qwen3_5"))
        yield hub


@pytest.fixture
def run(hub: ModelHub, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program in a process with torch, but without the hub's library.

    That library reads its environment when it is imported. Caches are empty; there is a network
    unless `offline`.
    """

    def run(program: str, name: str, *, offline: bool = False) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text("import sys; assert 'huggingface_hub' not in sys.modules\n" + program)
        environment = {
            **os.environ,
            "HF_ENDPOINT": "http://127.0.0.1:9" if offline else hub.url,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        with_torch = Program(file, ("calibrator", "torch"))
        return run_warm([name], cwd=ROOT, env=environment, timeout_s=120, program=with_torch)

    return run


def test_the_released_name_downloads_once_and_works_offline(
    hub: ModelHub, run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The released name downloads adapter and base once, without pickles, and then works offline.

    That repository has no calibrator.json, so the release's preset is used (W01).
    """
    first = run(SCORE, NAME)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("pinocchio-0.8b@")
    assert not list((tmp_path / "hub").rglob("training_args.bin"))
    assert not any(path.endswith(".bin") for path in hub.asked)
    downloads = hub.model_requests()
    assert run(SCORE, NAME, offline=True).stdout == first.stdout
    assert run(VERSION, NAME).stdout.strip() == first.stdout.split()[0]
    assert hub.model_requests() == downloads


def test_a_name_stays_at_its_first_revision(
    hub: ModelHub, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A name stays at its first revision; another one can be asked for by name."""
    [old, new] = list(hub.repositories[NAME].commits)[:2]
    made = hub.repositories[NAME].commits.pop(new)
    first = run(VERSION, NAME)
    hub.repositories[NAME].commits[new] = made
    assert run(VERSION, NAME).stdout == first.stdout
    latest = run(VERSION, f"{NAME}@{new}")
    assert latest.stdout != first.stdout
    assert run(VERSION, f"{NAME}@{old}").stdout == first.stdout
    assert run(VERSION, f"{NAME}@{new}", offline=True).stdout == latest.stdout


@pytest.mark.parametrize("name", ["nobody/nothing", f"{NAME}@0000000"])
def test_a_name_unknown_to_the_hub_is_refused(
    run: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    """A name or revision that the hub lacks is refused with the name and a hint."""
    failed = run(VERSION, name)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith(f"calibrator.errors.HubError: {name!r} is")
    assert "check the name and the network" in failed.stderr


def test_a_base_that_cannot_be_had_is_no_matter_of_the_embedded_calibrator(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """If the base for training is missing, the error names the option --base."""
    failed = run(BEGINNING, "nobody/nothing")
    assert failed.stderr.splitlines()[-1].endswith("or name a folder with --base")


def test_without_a_network_the_first_use_fails_clearly(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Without a network the first use fails with a HubError."""
    failed = run(VERSION, NAME, offline=True)
    assert failed.returncode == 1
    assert "HubError" in failed.stderr


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        ("owner/name", True),
        ("owner/name-1.5@refs/pr/1", True),
        ("./folder/name", False),
        ("/tmp/x", False),
        ("~/x", False),
        ("embedded", False),
        ("a/b/c", False),
        ("owner/na me", False),
    ],
)
def test_hub_names_have_an_owner(name: str, is_name: bool) -> None:
    """Only `owner/name` is a name of the hub."""
    assert is_hub_name(name) is is_name
