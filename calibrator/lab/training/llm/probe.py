"""Fit a probe on the states of training rows, once the adapter is finished (K14)."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from calibrator.llm.serving.probe import Probe

UNITS: Final = 64
STEPS: Final = 400
BATCH: Final = 512
LEARNING_RATE: Final = 1e-3
WEIGHT_DECAY: Final = 0.1
WATCH_EVERY: Final = 20  # steps


def fit_probe(
    features: Tensor,
    targets: Tensor,
    held_features: Tensor,
    held_targets: Tensor,
    seed: int,
) -> Probe:
    """Fit a probe for 400 steps, and return its state with the least loss on held-out rows.

    Features are (N, F), targets (N,) of 0.0 and 1.0. The loss is checked every 20 steps. The
    adapter has seen the training rows, so their states are easier to classify than those of other
    questions; therefore the held-out rows decide. The same seed gives the same probe.
    """
    deviation, mean = torch.std_mean(features, dim=0, correction=0)
    deviation = deviation.clamp_min(1e-6)
    random = torch.Generator().manual_seed(seed)
    hidden, out = _layer(UNITS, features.shape[1], random), _layer(1, UNITS, random)
    best, least = Probe(mean, deviation, *_copies(hidden, out)), float("inf")
    adam = torch.optim.AdamW(
        [*hidden.parameters(), *out.parameters()], lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    for step in range(STEPS + 1):
        if step % WATCH_EVERY == 0:
            now = Probe(mean, deviation, *_copies(hidden, out))
            loss = _loss(now.odds(held_features), held_targets).item()
            if loss < least:
                best, least = now, loss
        chosen = torch.randint(len(features), (min(BATCH, len(features)),), generator=random)
        inputs = (features[chosen] - mean) / deviation
        loss_now = _loss(out(torch.relu(hidden(inputs)))[:, 0], targets[chosen])
        loss_now.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        adam.step()
        adam.zero_grad()
    return best


def _layer(outputs: int, inputs: int, random: torch.Generator) -> nn.Linear:
    """Return a linear layer with normal random weights of variance 1 / inputs, and zero bias."""
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(outputs, inputs, generator=random) * inputs**-0.5)
        layer.bias.zero_()
    return layer


def _copies(*layers: nn.Linear) -> list[Tensor]:
    """Return detached copies of the layers' weights and biases: weight, bias, weight, bias .."""
    return [p.detach().clone() for layer in layers for p in (layer.weight, layer.bias)]


def _loss(odds: Tensor, targets: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of log-odds (N,) against targets (N,), a scalar."""
    return binary_cross_entropy_with_logits(odds, targets)
