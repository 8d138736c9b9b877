"""The training of the reader in torch: MiniLM's layers and a head, on batches of word pieces.

The learning rate rises, stays, and falls to nearly zero over the second half. The word vectors are
frozen. Towards the end the weights are rounded in the forward pass as in serving, and the mean of
several points of the training is kept: later points fit the training's sources better and others
worse. The state is saved every few minutes, and an interrupted run resumes from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from calibrator.features.small_encoder import GROUP, LAYER_BITS, SHARES
from calibrator.lab.training.fits.evidence.examples import NOT_ENTAIL, ReaderExample
from calibrator.readers.evidence.context.support import LABELS


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """The settings of the fit; `pieces` is the size of a batch in word pieces."""

    pieces: int = 4096
    learning_rate: float = 1.5e-4
    warm_up: int = 150  # steps
    last_share: float = 0.04  # share of the learning rate at the end
    save_every: int = 300  # steps
    rounded_from: float = 0.65  # share of the steps after which weights are rounded
    averaged: tuple[float, ...] = (0.45, 0.6, 0.8, 1.0)  # shares of the steps whose mean is kept
    seed: int = 1


class ReaderNet(nn.Module):
    """BERT with a linear head over the first state and the mean of all, for training alone."""

    def __init__(self, base: Path) -> None:
        """Load BERT's configuration and weights from the folder `base`, and draw those of the head.

        Word vectors are frozen and dropout is off.
        """
        super().__init__()
        config = BertConfig.from_json_file(base / "config.json")
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        config.hidden_act = "gelu_pytorch_tanh"  # as in serving
        config._attn_implementation = "eager"  # trains faster on a CPU
        self.bert = BertModel(config, add_pooling_layer=False)
        state = {
            name.removeprefix("bert."): array
            for name, array in load_file(base / "model.safetensors").items()
            if "pooler" not in name and "position_ids" not in name
        }
        self.bert.load_state_dict(state)
        self.bert.embeddings.word_embeddings.requires_grad_(False)
        self.head = nn.Linear(2 * config.hidden_size, len(LABELS))
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return logits of `LABELS`, (B, 3), for rows of word pieces `ids` (B, T).

        `mask` (B, T) is 0 where a row is padded, and `types` (B, T) is 1 in its second text.
        """
        found = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)
        states = found.last_hidden_state.float()
        weights = mask[..., None].float()
        mean = (states * weights).sum(1) / weights.sum(1)
        logits: Tensor = self.head(torch.cat([states[:, 0], mean], 1))
        return logits


def fit_reader(
    examples: Sequence[ReaderExample],
    base: Path,
    folder: Path,
    config: ReaderConfig,
    say: Callable[[str], None],
) -> ReaderNet:
    """Fit the reader on examples in one pass, and return it with mean weights.

    The mean is over the points of the training that `config.averaged` names. The state is saved as
    `reader.pt` in `folder` every `config.save_every` steps and at the end; if the file exists, the
    fit resumes from it. `base` is the folder of MiniLM. `say` gets a line of progress at each save.
    Raises OSError if the state cannot be written.
    """
    torch.manual_seed(config.seed)
    net = ReaderNet(base)
    free = [each for each in net.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(free, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    batches = batches_of(examples, config.pieces, random.Random(config.seed))
    path, start, sums = folder / "reader.pt", 0, dict[str, Any]()
    if path.exists():
        saved = torch.load(path)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        start, sums = saved["step"] + 1, saved["sums"]
    points = {round(share * len(batches)) - 1 for share in config.averaged}
    net.train()
    for step, batch in enumerate(batches):
        if step < start:
            continue
        if step >= config.rounded_from * len(batches):
            round_weights(net)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, len(batches), config)
        ids, mask, types, labels = tensors([examples[at] for at in batch])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(ids, mask, types)
        loss = loss_of(logits.float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        nn.utils.clip_grad_norm_(free, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step in points:
            state = net.state_dict()
            sums = {name: sums.get(name, 0) + each.detach() for name, each in state.items()}
        if step % config.save_every == config.save_every - 1 or step == len(batches) - 1:
            say(f"step {step + 1} of {len(batches)}, loss {loss.item():.3f}")
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
            _save(path, {**state, "step": step, "sums": sums})
    net.load_state_dict({name: each / len(points) for name, each in sums.items()})
    return net


def round_weights(net: ReaderNet) -> None:
    """Make the linear layers of `net`'s encoder compute with rounded weights from now on.

    The layers' `forward` is replaced; their weights stay, and the gradient passes the rounding.
    """
    for module in net.bert.encoder.modules():
        if isinstance(module, nn.Linear):
            module.forward = partial(_rounded_linear, module)  # type: ignore[method-assign]


def _rounded_linear(layer: nn.Linear, states: Tensor) -> Tensor:
    """Return a linear layer's output with its weights rounded as in serving."""
    return nn.functional.linear(states, round_tensor(layer.weight), layer.bias)


def round_tensor(weight: Tensor) -> Tensor:
    """Return weights (N, D) rounded as in serving; the gradient passes unchanged.

    Each group of `GROUP` numbers has its own scale, of those in `SHARES` the one with the least
    error.
    """
    limit = 2 ** (LAYER_BITS - 1) - 1
    parts = weight.detach().view(len(weight), -1, GROUP)
    largest = parts.abs().amax(2, keepdim=True).clamp_min(1e-6)
    best, least = parts, torch.full_like(largest, torch.inf)
    for share in SHARES:
        scale = largest * (share / limit)
        near = (parts / scale).round().clamp(-limit, limit) * scale
        lost = ((parts - near) ** 2).sum(2, keepdim=True)
        best, least = torch.where(lost < least, near, best), torch.minimum(lost, least)
    return weight + (best.view_as(weight) - weight).detach()


def _save(path: Path, state: dict[str, Any]) -> None:
    """Write a state to `<name>.new` beside `path`, which then replaces it."""
    temporary = path.with_suffix(".new")
    torch.save(state, temporary)
    temporary.replace(path)


def rate(step: int, steps: int, config: ReaderConfig) -> float:
    """Return the learning rate of a step, from 0, of `steps` steps.

    It rises over `config.warm_up` steps to `config.learning_rate`, stays until half of the steps,
    then falls linearly to the share `config.last_share`.
    """
    done = step / max(steps, 1)
    fall_factor = 1.0 if done < 0.5 else 1 - (done - 0.5) / 0.5 * (1 - config.last_share)
    return config.learning_rate * min(1.0, (step + 1) / config.warm_up) * fall_factor


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of logits (B, 3) for labels (B,), a scalar.

    A label `NOT_ENTAIL` counts the sum of the probabilities of neutral and contradict.
    """
    logs = torch.log_softmax(logits, -1)
    known = -logs.gather(1, labels.clamp(max=NOT_ENTAIL - 1)[:, None])[:, 0]
    return torch.where(labels < NOT_ENTAIL, known, -torch.logsumexp(logs[:, 1:], 1)).mean()


def batches_of(
    examples: Sequence[ReaderExample], pieces: int, rng: random.Random
) -> list[list[int]]:
    """Return batches of indexes of examples, of similar lengths, in random order.

    A batch has at most `pieces` word pieces after padding; a longer example is alone.
    """
    order = list(range(len(examples)))
    rng.shuffle(order)
    order.sort(key=lambda at: len(examples[at].row) + rng.random() * 6)
    found = list(_pack_batches(order, examples, pieces))
    rng.shuffle(found)
    return found


def _pack_batches(
    order: Sequence[int], examples: Sequence[ReaderExample], pieces: int
) -> Iterator[list[int]]:
    """Yield batches of the indexes `order`, with at most `pieces` word pieces after padding.

    `order` is sorted by length, shortest first; a longer example is alone.
    """
    batch: list[int] = []
    for at in order:  # sorted by length, so the last of a batch is the longest
        if batch and len(examples[at].row) * (len(batch) + 1) > pieces:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def tensors(batch: Sequence[ReaderExample]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (ids, mask, segments, labels) of a batch of examples.

    The first three are (B, T), padded with 0; the mask is 1 in a row and the segment 1 in its
    second text. Labels are (B,).
    """
    longest = max(len(each.row) for each in batch)
    ids, mask, types = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(3))
    for number, each in enumerate(batch):
        ids[number, : len(each.row)] = torch.tensor(each.row)
        mask[number, : len(each.row)] = 1
        types[number, each.second : len(each.row)] = 1
    return ids, mask, types, torch.tensor([each.label for each in batch])
