"""Read P(correct) from the last hidden state by a small network, a part of a checkpoint (K14).

It is stored in `probe.safetensors` beside the adapter, in fp32. It is fitted on this adapter's
states, so its numbers mean nothing with other weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from calibrator.errors import CheckpointError

PROBE: Final = "probe.safetensors"


@dataclass(frozen=True, slots=True)
class Probe:
    """One hidden layer of W units over F standardised features, all fp32 on the CPU.

    The features are the last state, (hidden,), and for elicitation `both` the labels' log-odds
    after it.
    """

    mean: Tensor  # (F,)
    deviation: Tensor  # (F,)
    hidden_weight: Tensor  # (W, F)
    hidden_bias: Tensor  # (W,)
    out_weight: Tensor  # (1, W)
    out_bias: Tensor  # (1,)

    def odds(self, features: Tensor) -> Tensor:
        """Return log-odds (N,) of being correct, for features (N, F)."""
        standard = (features - self.mean) / self.deviation
        units = torch.relu(standard @ self.hidden_weight.T + self.hidden_bias)
        return (units @ self.out_weight.T + self.out_bias)[:, 0]

    def save(self, folder: Path) -> None:
        """Write the arrays to `probe.safetensors` in a folder."""
        save_file(asdict(self), folder / PROBE)


def features_of(states: Tensor, odds: Tensor, *, has_odds: bool) -> Tensor:
    """Return a probe's input: states (N, hidden), with `has_odds` and one more column.

    That column is the labels' log-odds (N,).
    """
    return torch.cat([states, odds[:, None]], dim=1) if has_odds else states


def load_probe(folder: Path, features: int) -> Probe:
    """Load the probe of a checkpoint's folder for inputs of `features` numbers.

    Raises CheckpointError if it is missing or has another shape.
    """
    path = folder / PROBE
    try:
        state = load_file(path)
    except Exception as error:  # safetensors' own, or OSError
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    names = {each.name for each in fields(Probe)}
    if set(state) != names or any(weight.dtype != torch.float32 for weight in state.values()):
        raise CheckpointError(
            f"{path} is no probe: it must hold {', '.join(sorted(names))} in fp32"
        )
    units = len(state["hidden_bias"])
    shapes = [(features,), (features,), (units, features), (units,), (1, units), (1,)]
    for each, shape in zip(fields(Probe), shapes, strict=True):
        if state[each.name].shape != shape:
            raise CheckpointError(
                f"{path}: {each.name} is {tuple(state[each.name].shape)}, {shape} fits the base"
            )
    return Probe(**state)
