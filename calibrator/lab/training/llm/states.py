"""Compute the last hidden states of items, for probes and for measurements during a training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.scorer import Item


def precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which an fp32 adapter computes in bf16 on a GPU that has it (E06).

    On other devices the context does nothing.
    """
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", torch.bfloat16)
    return nullcontext()


def pack_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group rows by similar length; return lists of their indexes, the shortest rows first.

    `lengths` are the rows' numbers of tokens. A group's longest row times its number of rows is at
    most `budget`; a longer row is a group of its own.
    """
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
    """Return (states (N, hidden) at the answer's place, log-odds (N,) of the label correct).

    Both are in fp32 on the CPU, in the order of `items`. `budget` is the largest number of tokens
    of a forward pass, with padding. Raises NotScorableError for an item that cannot be read.
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
