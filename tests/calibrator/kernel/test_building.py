"""The build of the kernel, and its use only if it fits the sources."""

from __future__ import annotations

import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.kernel import MODULE, hatch_hook, kernel_name, load_kernel
from calibrator.scorer import Item
from tests.calibrator.kernel.kernels import (
    CLOSE,
    fresh_calibrator,
    fresh_kernel,
    numpy_alone,
    texts,
)
from tests.running.live_proxy import ROOT


def test_a_setting_turns_it_off(kernel: ModuleType) -> None:
    """`PINOCCHIO_KERNEL=numpy` turns the kernel off, and `kernel_name` says what computes."""
    assert kernel_name() == f"compiled, {kernel.ARITHMETIC}"
    with numpy_alone():
        assert (load_kernel(), kernel_name()) == (None, "numpy")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a folder with the kernel's C files, and nothing built from them."""
    shutil.copytree(ROOT / "calibrator/kernel/source", tmp_path / "source")
    return tmp_path


def test_without_a_compiler_there_is_none(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the build hook says why and leaves nothing behind."""
    monkeypatch.setenv("CC", "/bin/false")
    assert hatch_hook.build(sources) == "/bin/false gave 1"
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert "No such file" in hatch_hook.build(sources)
    assert [path.name for path in sources.iterdir()] == ["source"]


def test_a_module_of_other_files_is_not_used(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module built from other C files is not used."""
    assert hatch_hook.sources_digest(ROOT / "calibrator/kernel/source") == kernel.SOURCES
    monkeypatch.setattr(kernel, "SOURCES", "00000000")
    with fresh_kernel():
        assert load_kernel() is None


def test_without_avx2_it_computes_the_same(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
    sources: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without AVX2 confidences are the same to 1e-6, with the same reasons."""
    assert hatch_hook.build(sources, "-O1", "-DPLAIN_ARITHMETIC") == ""
    spec = spec_from_file_location(MODULE, sources / hatch_hook.MODULE)
    assert spec is not None
    assert spec.loader is not None
    plain = module_from_spec(spec)
    spec.loader.exec_module(plain)
    items = [Item(*each) for each in [*texts(40), ("Who wrote Faust?", "Goethe.")]]
    with fresh_kernel():
        monkeypatch.setitem(sys.modules, MODULE, plain)
        assert kernel_name() == "compiled, plain"
        found = fresh_calibrator().score_batch(items)
        monkeypatch.undo()
    with numpy_alone():
        wanted = both[1].score_batch(items)
    for one, other in zip(found, wanted, strict=True):
        assert one.confidence == pytest.approx(other.confidence, abs=CLOSE)
        assert one.because == other.because
