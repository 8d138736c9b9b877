"""The milliseconds of one score: tokenizer and forward pass, alone in this process, on the CPU."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from calibrator.checkpoint import (
    CHECKPOINTS,
    EMBEDDED,
    CheckpointConfig,
    EncoderConfig,
    sha256_of,
    write_config,
)
from calibrator.cross_encoder import CrossEncoder, CrossEncoderModel, load_cross_encoder
from calibrator.layout import Layout
from calibrator.scorer import Item

TOKENS = (128, 256, 512)
WARM_UP = 2


def checkpoint_folder(scratch: Path) -> Path:
    """The embedded checkpoint; until there is one, random weights of its size, as fast as it."""
    embedded = CHECKPOINTS / EMBEDDED
    if (embedded / "calibrator.json").is_file():
        return embedded
    folder = scratch / "random-weights"
    folder.mkdir()
    save_file(CrossEncoderModel(EncoderConfig()).state_dict(), folder / "model.safetensors")
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 100}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    digest = sha256_of(folder / "model.safetensors")
    write_config(folder, CheckpointConfig(name="random weights", weights_sha256=digest))
    return folder


def score_ms(folder: Path, repeats: int, at_most_s: float) -> dict[str, dict[str, float]]:
    """Median milliseconds of one score: threads -> tokens -> ms.

    A length is measured `repeats` times, or for `at_most_s`.
    """
    loaded = load_cross_encoder(folder, "cpu")
    scorers = {tokens: _of_length(loaded, tokens) for tokens in TOKENS}
    found = {}
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        found[str(threads)] = {
            str(tokens): _median_ms(scorer, tokens, repeats, at_most_s)
            for tokens, scorer in scorers.items()
        }
    return found


def _of_length(loaded: CrossEncoder, tokens: int) -> CrossEncoder:
    config = replace(loaded.config, layout=Layout(max_tokens=tokens))
    return CrossEncoder(config, loaded.model, loaded.tokenizer, loaded.device)


def _median_ms(scorer: CrossEncoder, tokens: int, repeats: int, at_most_s: float) -> float:
    item = Item("why " * (tokens // 4), "so " * tokens)  # one token a word, and too many of them
    assert len(scorer.token_rows([item])[0].ids) == tokens
    times: list[float] = []
    deadline = time.perf_counter() + at_most_s
    for number in range(WARM_UP + repeats):
        if number > WARM_UP and time.perf_counter() > deadline:
            break
        started = time.perf_counter()
        scorer.score_batch([item])
        times.append((time.perf_counter() - started) * 1_000)
    return statistics.median(times[WARM_UP:])
