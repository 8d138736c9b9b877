"""The encoder in torch, and that it computes what serves on ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrator import Item
from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.checkpoints.devices import choose_device
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.embedded.parts import read_checkpoint
from calibrator.embedded.torch_encoder import (
    CrossEncoderModel,
    TorchEncoder,
    collate,
    load_base,
    load_torch_encoder,
    load_weights,
)
from calibrator.features.weights import WORDS, packed, unpacked
from calibrator.installing import install_command
from calibrator.text.layout import PAD, SEP, TokenRow
from calibrator.training.run import base_folder
from tests.builders.tiny_checkpoint import save_checkpoint, save_tiny

TEXTS = [
    ("What is 2 + 2?", "4"),
    ("", ""),
    ("Which city is the capital of Australia?", "Sydney is the capital of Australia."),
    ("Wie hoch ist die Zugspitze?", "Die Zugspitze ist 2962 Meter hoch. ✓"),
    ("Sort the list [3, 1, 2].", "First 1, then 2, then 3. " * 30),
    ("Call the weather function. " * 40, '{"name": "weather", "arguments": {"city": "Oslo"}}'),
    ("asdkj qwpeoi zmxn", "🙂 lorem ipsum \u202e dolor"),
]
ITEMS = [Item(question, answer) for question, answer in TEXTS]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real encoder that training begins with, under a head of random weights."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(1)
    model = CrossEncoderModel(EncoderConfig())
    head = {k: v.clone() for k, v in model.state_dict().items() if k.startswith("head.")}
    load_base(model, base_folder())
    model.load_state_dict(head, strict=False)
    return save_checkpoint(folder, model, EncoderConfig())


def in_torch(folder: Path) -> EmbeddedCalibrator:
    """The checkpoint, its encoder in torch on the CPU."""
    found = read_checkpoint(folder)
    encoder = load_torch_encoder(found.config.encoder, found.weights, "cpu")
    return EmbeddedCalibrator(found.config, found.tokenizer, encoder, found.parts)


def test_both_encoders_read_the_same_in_a_row(tiny: Path) -> None:
    """Features and logits of random weights agree to five digits, at every length of row."""
    served, trained = load_embedded(tiny, "cpu"), in_torch(tiny)
    rows = served.token_rows(ITEMS)
    assert len({len(row.ids) for row in rows}) > 3
    for ours, theirs in zip(served.encoder(rows), trained.encoder(rows), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_an_encoder_of_real_size_gives_the_same_confidence_in_torch(base: Path) -> None:
    """No confidence differs by more than 1e-4; 0.02 is what may be allowed to a faster way."""
    served, trained = (
        [score.confidence for score in scorer.score_batch(ITEMS)]
        for scorer in (load_embedded(base, "cpu", threads=1), in_torch(base))
    )
    assert served == pytest.approx(trained, abs=1e-4)
    assert max(served) - min(served) > 0.01  # they are not all the same


def test_its_features_are_the_same_in_torch(base: Path) -> None:
    """Those of the real encoder agree too, whatever its head makes of them."""
    served, trained = load_embedded(base, "cpu", threads=1), in_torch(base)
    rows = served.token_rows(ITEMS)
    ours, theirs = served.encoder(rows)[0], trained.encoder(rows)[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.abs(theirs).max() > 0.1


def test_rows_are_padded_on_the_right(tiny: Path) -> None:
    """The mask covers the row and nothing else; the second segment is the answer."""
    short, long = load_embedded(tiny).token_rows(
        [Item("q", "a"), Item("a longer question?", "and its answer")]
    )
    ids, mask, segments = collate([short, long])
    size = len(short.ids)
    assert ids.shape == mask.shape == segments.shape == (2, len(long.ids))
    assert ids[0].tolist() == [*short.ids, *[PAD] * (len(long.ids) - size)]
    assert mask.sum(1).tolist() == [size, len(long.ids)]
    assert ids[0, short.segment_b - 1] == SEP
    assert segments[0].tolist() == [
        int(short.segment_b <= at < size) for at in range(len(long.ids))
    ]


def test_padding_changes_no_score(tiny: Path) -> None:
    """A row beside longer ones has the logits that it has alone."""
    scorer = in_torch(tiny)
    rows: list[TokenRow] = scorer.token_rows(ITEMS)
    together = scorer.encoder(rows)[1]
    alone = np.concatenate([scorer.encoder([row])[1] for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_it_is_ready_to_score(tiny: Path) -> None:
    """Dropout is off."""
    found = read_checkpoint(tiny)
    encoder = TorchEncoder(
        load_weights(CrossEncoderModel(found.config.encoder), found.weights), torch.device("cpu")
    )
    assert not encoder.model.training


def test_words_that_were_packed_stay_as_they_are(tiny: Path) -> None:
    """Training starts from words as they ship, so packing them once more changes nothing."""
    words = read_checkpoint(tiny).weights[WORDS].astype(np.float32)
    table, scale = packed(words)
    assert table.dtype == np.int8
    once = unpacked(table, scale)
    assert 0 < np.abs(once - words).max() < 0.01 * np.abs(words).max()
    np.testing.assert_array_equal(unpacked(*packed(once)), once)


def test_devices() -> None:
    """`auto` finds one, and a name is taken at its word."""
    assert choose_device("auto").type in ("cpu", "cuda")
    assert choose_device("cpu") == torch.device("cpu")


def test_a_device_of_torchs_needs_its_extra(tiny: Path) -> None:
    """Without torch, `device: cuda` is one sentence that says what to install."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from calibrator import load_scorer\n"
        f"load_scorer({str(tiny)!r}, 'cuda')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == (
        "calibrator.errors.MissingExtraError: torch (for device 'cuda') is not installed; it comes "
        f"with: {install_command('torch')}"
    )


def test_an_encoder_on_the_cpu_needs_its_extra(tiny: Path) -> None:
    """Without ONNX Runtime, a checkpoint with an encoder is one sentence; the shipped one loads."""
    code = (
        "import sys\n"
        "sys.modules['onnxruntime'] = sys.modules['onnx'] = None\n"
        "from calibrator import load_scorer\n"
        "load_scorer('embedded')\n"
        f"load_scorer({str(tiny)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert install_command("encoder") in done.stderr.splitlines()[-1]
