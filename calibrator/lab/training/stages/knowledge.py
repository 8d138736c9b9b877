"""Train a small network on a packed encoder's vectors, to tell right answers from wrong ones.

The encoder stays as it is, except that it is packed. The network is fitted to rank the right answer
above the wrong one, on pairs of our own (`calibrator.lab.training.fits.knowledge.pairs`) and on
right and wrong replies to one training question. The gate distinguishes our questions from those of
benchmarks: the difficulty of the latter is known, and the answer counts for less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import softplus

from calibrator.features.small_encoder import SmallEncoder, small_state
from calibrator.features.weights import Array, Floats
from calibrator.lab.training.fits.knowledge.lessons import KnowledgeConfig, own_pairs, pairs_of_rows
from calibrator.lab.training.fits.knowledge.pairs import SINGLE, AnswerPair
from calibrator.readers.knowledge import PREFIX
from calibrator.readers.knowledge.knowledge import (
    ENCODER,
    LIMIT,
    MOST_PIECES,
    SCALE_OF_VECTOR,
    network_input,
    vectors_of,
)
from calibrator.rows.rows import Row

PLAIN = (
    "the a an is was were are of in on by to for and it its at from with as one people . , ' ? s"
)
DROPPED = "*"  # marks of bold text
BATCH = 256
AT_ONCE = 32
ALL_OURS = 10.0  # log-odds


class Network(nn.Module):
    """The network of `knowledge.Member` in torch."""

    def __init__(self, hidden: int, config: KnowledgeConfig) -> None:
        """Draw initial weights for vectors of `hidden` numbers; those of the last layer are 0."""
        super().__init__()
        self.cosines = nn.Parameter(torch.tensor([4.0, 6.0, -3.0]))
        self.asked = nn.Parameter(torch.randn(config.projected, hidden) * 0.05)
        self.added = nn.Parameter(self.asked.detach().clone())
        self.first = nn.Linear(5 * hidden, config.width)
        self.second = nn.Linear(config.width, 1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)
        self.dropout = nn.Dropout(0.3)

    def forward(self, vectors: Tensor, inputs: Tensor) -> Tensor:
        """Return the log-odds of right, (B,).

        `vectors` (B, 3, hidden) are those of question, answer and addition (the answer's own
        words), and `inputs` (B, 5 * hidden) is their `network_input`.
        """
        question, answer, added = vectors.unbind(dim=1)
        near = torch.stack([(question * answer).sum(1), (question * added).sum(1)], dim=1)
        left = (self.dropout(question) * SCALE_OF_VECTOR) @ self.asked.T
        right = (self.dropout(added) * SCALE_OF_VECTOR) @ self.added.T
        inner = self.dropout(torch.relu(self.first(inputs)))
        found = near @ self.cosines[:2] + self.cosines[2] + (left * right).sum(1)
        return torch.as_tensor(found + self.second(inner)[:, 0])

    def state(self) -> dict[str, Array]:
        """Return the weights as fp16 arrays by name, such as `first.bias`, for a checkpoint."""
        own = {
            "cosines": self.cosines,
            "asked": self.asked,
            "added": self.added,
            "first": self.first.weight,
            "first.bias": self.first.bias,
            "second": self.second.weight[0],
            "second.bias": self.second.bias,
        }
        return {name: value.detach().numpy().astype(np.float16) for name, value in own.items()}


def fit_knowledge(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    base: Path,
    config: KnowledgeConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Array]:
    """Return the arrays of `Knowledge`, by names such as `knowledge.gate`.

    The encoder is packed from the base model, and networks are trained on our own pairs of answers
    and on those of `rows`. `base` is the folder of all-MiniLM-L6-v2. `say` gets the numbers of
    pairs. The same rows and seed give the same arrays. Raises MissingExtraError without
    scikit-learn.
    """
    state = small_state(
        load_file(base / "model.safetensors"), tokenizer.get_vocab(), config.layers, MOST_PIECES + 2
    )
    own, of_rows = own_pairs(config, seed), pairs_of_rows(rows, config, seed)
    say(f"knowledge: {len(own)} pairs of ours, {len(of_rows)} of training rows")
    reader = StateReader(tokenizer, SmallEncoder(state))
    sides = [reader.pair_vectors(pairs) for pairs in (own, of_rows) if pairs]
    weights = np.array([config.weight_of_single if p.group == SINGLE else 1.0 for p in own])
    networks = [_fit_network(sides, weights, config, seed + at) for at in range(config.members)]
    gate = _gate(reader, own, of_rows, seed)
    arrays = {f"{ENCODER}{name}": array for name, array in state.items()}
    for at, network in enumerate(networks):
        arrays |= {f"{at}.{name}": array for name, array in network.state().items()}
    middle = _middle(networks, sides)
    arrays["gate"] = gate.astype(np.float16)
    arrays["weights"] = np.array([config.least, config.more, middle], np.float32)
    arrays["plain"] = np.array(sorted(reader.plain), np.int32)
    arrays["dropped"] = np.array(sorted(reader.dropped), np.int32)
    return {PREFIX + name: array for name, array in arrays.items()}


class StateReader:
    """The small encoder's states of texts, each read once."""

    def __init__(self, tokenizer: Tokenizer, encoder: SmallEncoder) -> None:
        """Keep tokenizer and encoder, and the word pieces of `PLAIN` and `DROPPED`."""
        self.tokenizer, self.encoder = tokenizer, encoder
        self.plain = frozenset(self._ids(PLAIN))
        self.dropped = frozenset(self._ids(DROPPED))
        self._states: dict[str, tuple[list[int], Floats]] = {}

    def _ids(self, text: str) -> list[int]:
        """Return the word pieces of a text, without marks at its ends."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def read(self, texts: Sequence[str]) -> None:
        """Compute and keep the encoder's states of the texts that were not read before.

        A text is cut after `MOST_PIECES` word pieces; states are kept in fp16.
        """
        new = sorted({text for text in texts if text not in self._states}, key=len)
        for start in range(0, len(new), AT_ONCE):
            some = new[start : start + AT_ONCE]
            ids = [[x for x in self._ids(t) if x not in self.dropped][:MOST_PIECES] for t in some]
            for text, own, states in zip(some, ids, self.encoder(ids), strict=True):
                self._states[text] = own, states.astype(np.float16)

    def vectors(self, question: str, answer: str) -> Floats:
        """Return the vectors of question, answer and addition, (3, hidden).

        The addition are the answer's words with content that the question lacks. Raises KeyError
        for a text that was not read.
        """
        (question_ids, first), (answer_ids, second) = self._states[question], self._states[answer]
        mean = first.astype(np.float32).mean(axis=0)
        return vectors_of(mean, second.astype(np.float32), question_ids, answer_ids, self.plain)

    def pair_vectors(self, pairs: Sequence[AnswerPair]) -> tuple[Tensor, Tensor]:
        """Return two tensors (N, 3, hidden): the vectors of right answers, and of wrong ones.

        Each row has the vectors of question, answer and addition, as `vectors`. Texts are read if
        needed.
        """
        self.read([text for pair in pairs for text in (pair.question, pair.right, pair.wrong)])
        right = np.stack([self.vectors(pair.question, pair.right) for pair in pairs])
        wrong = np.stack([self.vectors(pair.question, pair.wrong) for pair in pairs])
        return torch.from_numpy(right), torch.from_numpy(wrong)

    def question(self, text: str) -> Floats:
        """Return a question's vector (hidden,), of length 1.

        Raises KeyError for one that was not read.
        """
        mean = self._states[text][1].astype(np.float32).mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean))


def _fit_network(
    sides: Sequence[tuple[Tensor, Tensor]],
    weights: NDArray[np.float64],
    config: KnowledgeConfig,
    seed: int,
) -> Network:
    """Fit one network: half of the loss ranks right above wrong, half classifies each answer.

    `sides` has the vectors (N, 3, hidden) of right and of wrong answers, first of our own pairs,
    then those of rows if there are any. `weights` (N,) are the chances with which our own pairs are
    drawn. The same seed gives the same network, which is returned in evaluation mode.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = Network(sides[0][0].shape[2], config)
    adam = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    chances = torch.from_numpy(weights)
    for step in range(config.steps):
        adam.param_groups[0]["lr"] = config.learning_rate * min(1, 2 - 2 * step / config.steps)
        at = [torch.multinomial(chances, min(BATCH, len(chances)), generator=generator)]
        for right, _ in sides[1:]:
            count = round(BATCH * config.share_of_rows)
            at.append(torch.randint(len(right), (count,), generator=generator))
        right, wrong = (
            network(vectors, torch.from_numpy(network_input(vectors.numpy())))
            for vectors in (
                torch.cat([pair[side][own] for pair, own in zip(sides, at, strict=True)])
                for side in (0, 1)
            )
        )
        ranked, told_apart = softplus(wrong - right), softplus(-right) + softplus(wrong)
        loss = (0.5 * ranked + 0.25 * told_apart).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        adam.step()
    return network.eval()


def _gate(
    reader: StateReader, own: Sequence[AnswerPair], of_rows: Sequence[AnswerPair], seed: int
) -> Floats:
    """Fit a linear model of a question's vector: the log-odds that it is ours, not a benchmark's.

    Returns its weights and, last, its constant, (hidden + 1,). `own` are our pairs, `of_rows` those
    of benchmarks' rows; without these the weights are 0 and every question counts as ours.
    """
    if not of_rows:
        return np.append(np.zeros(reader.encoder.hidden_size), ALL_OURS).astype(np.float32)
    from sklearn.linear_model import LogisticRegression

    ours = list(dict.fromkeys(pair.question for pair in own))
    single = {pair.question for pair in own if pair.group == SINGLE}
    theirs = list(dict.fromkeys(pair.question for pair in of_rows))
    weights = np.array([4.0 if text in single else 1.0 for text in ours])
    weights *= len(theirs) / weights.sum()
    model = LogisticRegression(C=3, max_iter=300, random_state=seed).fit(
        np.stack([reader.question(text) for text in [*ours, *theirs]]),
        np.repeat([1, 0], [len(ours), len(theirs)]),
        np.concatenate([weights, np.ones(len(theirs))]),
    )
    return np.concatenate([model.coef_[0], model.intercept_]).astype(np.float32)


@torch.inference_mode()
def _middle(networks: Sequence[Network], sides: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Return the mean log-odds over right and wrong answers, which is subtracted when serving.

    `sides` is as in `_fit_network`. Log-odds are the mean of the networks, within +-`LIMIT`.
    """
    found = []
    for vectors in (each for pair in sides for each in pair):
        inputs = torch.from_numpy(network_input(vectors.numpy()))
        odds = torch.stack([network(vectors, inputs) for network in networks]).mean(dim=0)
        found.append(odds.clamp(-LIMIT, LIMIT).mean().item())
    return float(np.mean(found))
