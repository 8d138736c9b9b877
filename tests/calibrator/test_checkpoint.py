"""Checkpoint folders: they are read as written, and faults in them are reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from calibrator import CheckpointError, FakeScorer, HubError, Item, check_checkpoint, load_scorer
from calibrator.checkpoints.checkpoint import (
    CheckpointConfig,
    read_config,
    resolve_checkpoint,
    sha256_of,
    write_config,
)
from calibrator.embedded.calibrator import load_embedded
from calibrator.features.weights import Floats
from calibrator.recalibration.curves import Platt
from calibrator.text.word_pieces import Layout
from tests.builders.tiny_checkpoint import CONFIG, save_tiny

ITEM = Item("2 + 2?", "4")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def change(folder: Path, edit: Callable[[Any], Any]) -> None:
    """Rewrite calibrator.json."""
    path = folder / "calibrator.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


# --- calibrator.json ----------------------------------------------------------------------------


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    """A configuration is read from calibrator.json as it was written."""
    config = CheckpointConfig(
        name="größe",
        weights_sha256="ab" * 32,
        base_rate=0.41,
        layout=Layout(max_tokens=300),
        recalibration=Platt(0.5, -0.25),
        source_models=("a", "b"),
        benchmarks=("gpqa",),
        training={"selection": {"rows": 5}},
        quality={"validation_plain": {"auroc": 0.8}},
    )
    write_config(tmp_path, config)
    assert read_config(tmp_path) == config


def test_without_recalibration_there_is_none(tmp_path: Path) -> None:
    """A checkpoint without a recalibration has none, and its version says so."""
    config = CheckpointConfig(name="raw", weights_sha256="0123456789abcdef")
    write_config(tmp_path, config)
    assert read_config(tmp_path).recalibration is None
    assert read_config(tmp_path).version == "raw@01234567"


def test_the_version_names_weights_and_recalibration() -> None:
    """The version names weights and recalibration, so that another curve has another name (B03)."""
    platt = Platt(0.5, 0.1)
    one = CheckpointConfig(name="x", weights_sha256="a" * 64, recalibration=platt)
    assert one.version == f"x@aaaaaaaa+{platt.name}"


def without(key: str) -> Callable[[Any], Any]:
    return lambda values: {k: v for k, v in values.items() if k != key}


def with_(**changes: Any) -> Callable[[Any], Any]:
    return lambda values: {**values, **changes}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (with_(format=2), "format 2, this version reads 1"),
        (with_(format=None), "format None, this version reads 1"),
        (without("format"), "lacks 'format'"),
        (with_(architecture="lora"), "architecture 'lora' is not one of embedded"),
        (without("architecture"), "lacks 'architecture'"),
        (without("layout"), "lacks 'layout'"),
        (without("labels"), "lacks 'labels'"),
        (without("weights_sha256"), "weights_sha256"),
        (with_(surprise=1), "unexpected keyword argument 'surprise'"),
        (with_(encoder={"hidden": 16}), "an encoder, which this version does not read"),
        (with_(layout=[]), "is not what this version writes"),
        (with_(labels=None), "is not what this version writes"),
        (with_(layout={}), "lacks 'max_tokens'"),
        (with_(recalibration={"kind": "platt", "slope": -1, "intercept": 0}), "positive slope"),
        (with_(recalibration="x"), "recalibration is damaged"),
        (lambda _: [1], "is not what this version writes"),
        (lambda _: None, "is not what this version writes"),
        (lambda _: "x", "is not what this version writes"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_refused(
    tiny: Path, edit: Callable[[Any], Any], message: str
) -> None:
    """An unknown or incomplete calibrator.json is refused, and the error names the fault."""
    change(tiny, edit)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        read_config(tiny)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        check_checkpoint(str(tiny))


@pytest.mark.parametrize("content", [b"", b"{", b"not json", b"\xff\xfe", b"[" * 100_000])
def test_a_configuration_that_is_no_json_is_refused(tiny: Path, content: bytes) -> None:
    """A calibrator.json that is no JSON is refused with its file name."""
    (tiny / "calibrator.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"calibrator\.json cannot be read"):
        read_config(tiny)


# --- the folder ---------------------------------------------------------------------------------


def test_a_checkpoint_survives_its_folder(tiny: Path) -> None:
    """A checkpoint that is saved and loaded has the same configuration and scores."""
    scorer = load_embedded(tiny)
    assert scorer.config.source_models == CONFIG.source_models
    assert scorer.name == f"tiny@{sha256_of(tiny / 'model.safetensors')[:8]}+{Platt(0.8, 0.1).name}"
    assert scorer.score_batch([ITEM]) == load_scorer(str(tiny), "cpu").score_batch([ITEM])


@pytest.mark.parametrize("name", ["calibrator.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(tiny: Path, name: str) -> None:
    """A missing file is refused by its name."""
    (tiny / name).unlink()
    with pytest.raises(CheckpointError, match=f"{re.escape(str(tiny))}.*({name}|No such file)"):
        load_embedded(tiny)


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage"])
def test_a_damaged_tokenizer_is_refused(tiny: Path, content: bytes) -> None:
    """A damaged tokenizer is refused."""
    (tiny / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_embedded(tiny)


def test_other_weights_than_named_are_refused(tiny: Path) -> None:
    """Weights with another SHA-256 than the configuration's are refused."""
    with (tiny / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(CheckpointError, match="sha256 differs"):
        load_embedded(tiny)


def test_weights_that_are_no_safetensors_are_refused(tiny: Path) -> None:
    """A file that is no safetensors is refused, even if its hash is right."""
    (tiny / "model.safetensors").write_bytes(b"no tensors")
    change(tiny, with_(weights_sha256=sha256_of(tiny / "model.safetensors")))
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_embedded(tiny)


def rename_one(state: dict[str, Floats]) -> None:
    state["head.9.weight"] = state.pop("tower.0.first.weight")


def drop_one(state: dict[str, Floats]) -> None:
    del state["tower.0.first.weight"]


def add_one(state: dict[str, Floats]) -> None:
    state["adapter.weight"] = np.zeros(1, np.float32)


def reshape_one(state: dict[str, Floats]) -> None:
    state["tower.0.first.weight"] = np.zeros((3, 16), np.float32)


@pytest.mark.parametrize("damage", [rename_one, drop_one, add_one, reshape_one])
def test_weights_that_do_not_match_are_refused(
    tiny: Path, damage: Callable[[dict[str, Floats]], None]
) -> None:
    """Missing, unknown and misshapen weights are refused."""
    weights = tiny / "model.safetensors"
    state = load_file(weights)
    damage(state)
    save_file(state, weights)
    change(tiny, with_(weights_sha256=sha256_of(weights)))
    with pytest.raises(CheckpointError, match=r"does not fit calibrator\.json"):
        load_embedded(tiny)


# --- names --------------------------------------------------------------------------------------


def test_a_folder_is_its_own_name(tiny: Path) -> None:
    """The path of a folder is resolved to itself."""
    assert resolve_checkpoint(str(tiny)) == tiny


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "/no/where", "~/nowhere", "a/b/c", ""])
def test_a_folder_that_is_not_there_is_no_hub_name(name: str) -> None:
    """A missing path is refused without a look-up in the network."""
    with pytest.raises(CheckpointError, match=r"no checkpoint folder|has no calibrator"):
        read_config(resolve_checkpoint(name))


@pytest.mark.parametrize("name", ["fake:0", "fake:0.73", "fake:1"])
def test_fake_scorers(name: str) -> None:
    """A fake scorer gives the number in its name."""
    check_checkpoint(name)
    scorer = load_scorer(name)
    assert scorer == FakeScorer(float(name[5:]))
    assert scorer.name == name


@pytest.mark.parametrize("name", ["fake:", "fake:x", "fake:1.01", "fake:-0.1", "fake:nan"])
def test_fakes_without_a_probability_are_refused(name: str) -> None:
    """A fake scorer's number must be from 0 to 1."""
    for load in (check_checkpoint, load_scorer):
        with pytest.raises(CheckpointError, match="fake:P with P from 0 to 1"):
            load(name)


def test_a_hub_name_without_network_is_a_hub_error(tmp_path: Path) -> None:
    """Without a network an unknown hub name is refused quickly, with a hint (G02)."""
    code = "from calibrator import check_checkpoint; check_checkpoint('nobody/no-such-checkpoint')"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stderr.splitlines()[-1] == (
        "calibrator.errors.HubError: 'nobody/no-such-checkpoint' is neither a folder nor could it "
        "be downloaded from the hub (LocalEntryNotFoundError); check the name and the network, or "
        "use 'embedded'"
    )
    assert issubclass(HubError, CheckpointError)


@pytest.mark.parametrize("name", ["labels", "source_models", "benchmarks"])
@pytest.mark.parametrize("value", ["text", None, {"a": 1}, [["a"]], [{"a": 1}], [1]])
def test_names_that_are_no_texts_are_refused(tmp_path: Path, name: str, value: object) -> None:
    """A list of names that holds anything but texts is refused."""
    values = json.loads((resolve_checkpoint("embedded") / "calibrator.json").read_text())
    (tmp_path / "calibrator.json").write_text(json.dumps(values | {name: value}))
    with pytest.raises(CheckpointError, match=f"{name} must be a list of texts"):
        read_config(tmp_path)
