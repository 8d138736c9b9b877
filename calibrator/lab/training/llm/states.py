"""Compute the last hidden states of items, for probes and for measurements during a training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.scorer import Item


def precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which an fp32 adapter computes in bf16 on a GPU that has it (E06)."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", torch.bfloat16)
    return nullcontext()


def pack_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group row numbers by similar length, at most `budget` tokens a group after padding."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batches and lengths[i] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


@torch.no_grad()
def last_states(
    calibrator: LlmCalibrator, items: Sequence[Item], budget: int
) -> tuple[Tensor, Tensor]:
    """Return states (N, hidden) at the answer's place and the labels' log-odds (N,).

    They are in fp32 on the CPU. `budget` is the largest number of tokens of a forward pass.
    """
    model = calibrator.model
    rows, _ = calibrator.rows(items)
    label_rows = model.label_rows()
    states = torch.empty(len(rows), label_rows.shape[1])
    odds = torch.empty(len(rows))
    for batch in pack_batches([len(row.ids) for row in rows], budget):
        with precision(model.device):
            found = model.hidden_states([rows[i] for i in batch])
        logits = found.float() @ label_rows.T
        states[batch], odds[batch] = found.float().cpu(), (logits[:, 1] - logits[:, 0]).cpu()
    return states, odds
