"""The embedded calibrator: a tower over n-grams, with a forest beside it.

P(correct) of a text = P(right | in order) x P(in order). The first factor is the softmax over two
logits, `i` and `ii` (paper B08, B09): the sigmoid of their difference, which is the log-odds of
`tower` and `forest`. The second factor is the inspector's (`inspection`): whether the reply answers
the question and agrees with itself. The first factor also depends on how able the named model is
(`abilities`) and, for a short factual reply, on what a small encoder knows (`knowledge`). The trees
of `calls` alone judge a reply that calls tools; they read its whole conversation. A reply that
could have called tools but has only text is compared with what was done (`calls`). If other models'
replies to the same question are given, they are compared with this one (`opinion`).

A score takes one forward pass in numpy, no network and no other weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.checkpoints.checkpoint import CheckpointConfig
from calibrator.embedded import evidence
from calibrator.embedded.call_scores import score_of
from calibrator.embedded.evidence import CheckedReply, Evidence
from calibrator.embedded.parts import Parts, read_checkpoint, shift_confidence, temper_confidence
from calibrator.embedded.tuned_layer import Features, features_of, layers_of, lines_of
from calibrator.features.forest import NO_NAME
from calibrator.features.ngrams import is_cut as too_long
from calibrator.features.successors import Predecessors
from calibrator.features.tower import TowerRow, tower_row
from calibrator.features.weights import Floats
from calibrator.kernel import kernel_name, run_together
from calibrator.readers.calls import read_reply
from calibrator.readers.inspection import DOUBTED, Inspection, inspect
from calibrator.readers.opinion import OpinionReader
from calibrator.recalibration.curves import probability, sigmoid
from calibrator.scorer import Item, Score, ToolUse, do_nothing, known_name
from calibrator.text.stripping import strip_addresses, without_question
from calibrator.text.word_pieces import WordPieces, is_clipped

NAME_EFFECT = 0.05  # the model's name is a reason if the confidence is lower by this because of it
OFTEN_WRONG = "the model is often wrong on such questions"
NOT_KNOWN = "the calibrator does not know the model"


def strip_items(items: Sequence[Item]) -> list[Item]:
    """Return the items without sentences of the answer that praise it or address its judge.

    Such a sentence is `I am sure that this is correct`. Changed items are copies.
    """
    return [_with_answer(item, strip_addresses(item.answer)) for item in items]


def _with_answer(item: Item, answer: str) -> Item:
    """Return the item with another answer: a copy, or the same item if the answer is the same."""
    return item if answer == item.answer else replace(item, answer=answer)


@dataclass(frozen=True, slots=True)
class TextReading:
    """The parts' reading of B texts, before the recalibration curve."""

    rows: list[TowerRow]
    odds: NDArray[np.float64]  # (B,) log-odds that a reply in order is right
    features: Floats  # (B, D) input of familiarity
    distances: NDArray[np.floating]  # (B,) by `Familiarity`; up to 1 is known
    in_order: NDArray[np.float64]  # (B,) P(it answers, agrees with itself, claims what was done)
    findings: list[tuple[str, ...]]  # reasons against being in order
    is_cut: list[bool]  # whether only a part of the text was read
    shifts: NDArray[np.float64]  # (B,) log-odds that knowledge, abilities, inspector add
    abilities: NDArray[np.float64]  # (B,) the part of `shifts` that the models' names add
    names: list[int]  # number of the model's name, from 1; 0 if it is unknown
    # for a second reading, as if a model of median ability had answered
    median_odds: NDArray[np.float64] | None  # (B,) the tower's log-odds
    forest_inputs: Floats | None  # input of the forest


class EmbeddedCalibrator:
    """A loaded checkpoint. It is a Scorer."""

    # A dozen replies of usual length. Each costs two thirds of a reply scored in a pair, since
    # weights are read once for all. In a larger batch the first reply would wait too long.
    batch_characters = 32_000
    computes_apart = True  # without Python's lock, once the texts are read

    def __init__(
        self,
        config: CheckpointConfig,
        tokenizer: Tokenizer,
        parts: Parts,
    ) -> None:
        """Join a checkpoint's parts to a scorer; raises KeyError, TypeError or ValueError.

        The errors are for evidence arrays that do not fit.
        """
        self.config = config
        self.tokenizer = tokenizer
        self._word_pieces = WordPieces(tokenizer)
        self.parts = parts
        self.reads_tool_use = parts.calls is not None
        self._source_models = {name: at + 1 for at, name in enumerate(config.source_models)}
        self._predecessors = Predecessors(self._source_models)
        self.evidence: Evidence | None = None
        if parts.evidence is not None:
            self.evidence = Evidence.from_state(parts.evidence, self._cut)
        self.layers = layers_of(parts.evidence or {})
        self._opinions = None
        if parts.opinion is not None and parts.forest is not None:
            shared = (self._word_pieces, config.layout, self._source_models)
            self._opinions = OpinionReader(parts.opinion, parts.forest, *shared)

    @property
    def name(self) -> str:
        """The checkpoint's name and version, such as `embedded@3f2a`."""
        return self.config.version

    @property
    def kernel(self) -> str:
        """What computes its scores, such as `compiled, avx2` or `numpy`."""
        return kernel_name()

    def _cut(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Return the word pieces (token ids) of each whole text."""
        return [*self._word_pieces.encode_whole(texts)]

    def _pieces(self, items: Sequence[Item]) -> list[list[array[int]]]:
        """Return for each item a list of two: the token ids of its question and of its answer."""
        texts = [text for item in items for text in (item.question, item.answer)]
        ids = self._word_pieces.encode(texts, self.config.layout)
        return [ids[at : at + 2] for at in range(0, len(ids), 2)]

    def _is_clipped(self, item: Item) -> bool:
        """Return whether only the two ends of the question or of the answer are cut into pieces."""
        return any(is_clipped(text, self.config.layout) for text in (item.question, item.answer))

    def _known_model(self, item: Item) -> str | None:
        """Return the item's model by its name in training, in lower case; None if unknown."""
        return known_name(item.source_model, self._source_models)

    def read_texts(
        self, items: Sequence[Item], meanwhile: Callable[[], None] = do_nothing
    ) -> TextReading:
        """Read B texts with tower, forest and inspector, and return the numbers of all.

        Each item's numbers are those that it would get alone. Restated questions and sentences that
        address the judge are removed from answers first. `meanwhile` is called once, after the
        texts are read and before the scores are computed.
        """
        items = self._without_questions(strip_items(items))
        pieces = self._pieces(items)
        rows = [
            tower_row(item.question, item.answer, question, answer)
            for item, (question, answer) in zip(items, pieces, strict=True)
        ]
        inspector_input = self._inspector_input(items, pieces, rows)
        odds, features = np.zeros(len(items)), np.zeros((len(items), 0), np.float32)
        is_cut = [too_long(question, answer) for question, answer in pieces]
        names = [self._source_models.get(self._known_model(item) or "", 0) for item in items]
        median_odds = forest_inputs = None
        meanwhile()
        if self.parts.tower is not None and self.parts.forest is not None and rows:
            ways = [names, [self.parts.forest.median_name] * len(rows)]
            ((odds, median_odds), features), forest_inputs = run_together(
                self.parts.tower.read_work(rows, ways), self.parts.forest.inputs_work(rows, names)
            )
            odds = self.parts.forest.join_with_inputs(odds, forest_inputs)
        elif self.parts.tower is not None:
            odds, features = self.parts.tower.read(rows, names)
        known = self.parts.familiarity
        inspected = self._inspect(items, inspector_input)
        abilities = self._abilities(items, names)
        return TextReading(
            rows=rows,
            odds=np.asarray(odds, dtype=np.float64),
            features=features,
            distances=known.distances(features) if known else np.zeros(len(items)),
            in_order=inspected.in_order,
            findings=inspected.findings,
            is_cut=[a or self._is_clipped(b) for a, b in zip(is_cut, items, strict=True)],
            shifts=self._shifts(items, pieces) + abilities + inspected.evidence,
            abilities=abilities,
            names=names,
            median_odds=median_odds,
            forest_inputs=forest_inputs,
        )

    def _shifts(
        self, items: Sequence[Item], pieces: Sequence[Sequence[array[int]]]
    ) -> NDArray[np.float64]:
        """Return the log-odds that the part `knowledge` adds to each item, (B,).

        Replies in agents' conversations and to questions with images get 0.
        """
        found = np.zeros(len(items))
        read = [at for at, x in enumerate(items) if x.tool_use is None and not x.images]
        if self.parts.knowledge is not None and read:
            texts = [(items[at].question, items[at].answer) for at in read]
            own = [(pieces[at][0], pieces[at][1]) for at in read]
            found[read] = self.parts.knowledge.shifts(texts, own)
        return found

    def _abilities(self, items: Sequence[Item], names: Sequence[int]) -> NDArray[np.float64]:
        """Return the log-odds that the answering models' names add, (B,).

        `names` are their numbers among the known ones, 0 for others. All are 0 without the part
        `abilities`.
        """
        abilities = self.parts.abilities
        if abilities is None:
            return np.zeros(len(names))
        found = abilities.odds_of(names)
        for at, item in enumerate(items):
            if not names[at] and item.source_model:
                found[at] = abilities.of_unknown(item.source_model)
        return found

    def _without_questions(self, items: Sequence[Item]) -> list[Item]:
        """Return items whose answers do not restate the question, as the inspector was trained.

        Without an inspector they stay as they are; changed items are copies.
        """
        if self.parts.inspector is None:
            return list(items)
        return [_with_answer(x, without_question(x.question, x.answer)) for x in items]

    def _inspector_input(
        self,
        items: Sequence[Item],
        pieces: Sequence[Sequence[array[int]]],
        rows: Sequence[TowerRow],
    ) -> Floats:
        """Return the inspector's input for each item, (B, SEEN); without an inspector (B, 0).

        `pieces` and `rows` are the items' word pieces and the tower's rows.
        """
        if self.parts.inspector is None or not items:
            return np.zeros((len(items), 0), np.float32)
        means = self.parts.inspector.pieces
        return np.stack(
            [
                inspect(item.question, item.answer, question, answer, means, row.traits)
                for item, (question, answer), row in zip(items, pieces, rows, strict=True)
            ]
        )

    def _inspect(self, items: Sequence[Item], inspector_input: Floats) -> Inspection:
        """Return P(in order) of B texts, the reasons against, and log-odds from the inspector.

        A reply is in order if it answers the question and agrees with itself. `inspector_input` is
        (B, SEEN). Without an inspector P is 1. For a reply in an agent's conversation, P is
        multiplied by P(honest) of `calls`, that it claims nothing that was not done, and the
        log-odds are 0.
        """
        found = Inspection(np.ones(len(items)), [()] * len(items), np.zeros(len(items)))
        if self.parts.inspector is not None and items:
            found = self.parts.inspector.read(inspector_input)
        agents = [at for at, item in enumerate(items) if item.tool_use is not None]
        found.evidence[agents] = 0
        if self.parts.calls is not None and agents:
            used = [use for at in agents if (use := items[at].tool_use) is not None]
            found.in_order[agents] *= sigmoid(self.parts.calls.claim_odds(used))
        return found

    def score_batch(
        self, items: Sequence[Item], meanwhile: Callable[[], None] = do_nothing
    ) -> list[Score]:
        """Return the score of each item, in order; neighbours do not change it.

        The text of an item is not read if its confidence without other replies is known
        (`Item.alone`); only the other replies are. `meanwhile` is called once, as `score_meanwhile`
        describes.
        """
        items = self._predecessors.of_items(items)
        found = {at: Score(x, x) for at, item in enumerate(items) if (x := item.alone) is not None}
        unread = [at for at in range(len(items)) if at not in found]
        calls = [at for at in unread if self.reads_as_call(items[at])]
        texts = sorted(set(unread) - set(calls))
        scores = [
            *self._score_calls([items[at] for at in calls]),
            *self._score_texts([items[at] for at in texts], meanwhile),
        ]
        found.update(zip([*calls, *texts], scores, strict=True))
        return self.with_others(items, [found[at] for at in range(len(items))])

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
        """Return the scores, in order, changed by the other replies to the questions.

        These are `Item.others`. A score is unchanged where its item has none, or the checkpoint has
        no part `opinion`.
        """
        return self._opinions.with_others(items, scores) if self._opinions else list(scores)

    def ability(self, model: str | None) -> float:
        """Return how able a model is, on the forest's scale; higher is more able.

        `NO_NAME` (-2) for None and for a model that neither training nor a successor's name knows.
        """
        model = self._predecessors.rated_as(model)
        return self._opinions.ability(model) if self._opinions else NO_NAME

    @property
    def opinion(self) -> str:
        """The name of scores that used other replies, such as `embedded@3f2a+opinion@9c1d`.

        Empty if the checkpoint reads no other replies.
        """
        return f"{self.name}+opinion@{self.parts.opinion.version}" if self.parts.opinion else ""

    def reads_as_call(self, item: Item) -> bool:
        """Return whether the trees for tool calls judge an item, and not the readers of texts.

        That is so if its reply calls tools and the checkpoint has the part `calls`.
        """
        return self.reads_tool_use and item.tool_use is not None and item.tool_use.has_calls

    def _score_calls(self, items: Sequence[Item]) -> list[Score]:
        """Return the scores of items whose replies call tools, in order.

        [] for no items, and if the checkpoint does not judge calls.
        """
        used = [item.tool_use for item in items if item.tool_use is not None]
        if self.parts.calls is None or not used:
            return []
        read = [read_reply(each) for each in used]
        names = [item.source_model for item in items]
        odds = self.parts.calls.odds_of(read, names).tolist()
        return [
            score_of(reply, found, partial(self._call_confidences, name))
            for reply, found, name in zip(read, odds, names, strict=True)
        ]

    def _call_confidences(self, name: str | None, used: Sequence[ToolUse]) -> list[float]:
        """Return P(correct) of replies with calls by the trees alone; `name` is their model."""
        assert self.parts.calls is not None
        return list(sigmoid(self.parts.calls.odds(used, [name] * len(used))).tolist())

    def _score_texts(self, items: Sequence[Item], meanwhile: Callable[[], None]) -> list[Score]:
        """Return the scores of replies of text, in order; `meanwhile` runs beside the kernel.

        The scores by likeness are changed by the checks against the conversation, if the checkpoint
        has these.
        """
        if not items:
            meanwhile()
            return []
        if self.evidence is None:
            return self.likeness(self.read_texts(items, meanwhile))
        replies = [evidence.read_reply(item) for item in items]
        read = self.read_texts([each.bare_item for each in replies], meanwhile)
        checked = self.evidence.check(replies)
        lines = lines_of(self.layers, self.features(checked, read)) if self.layers else None
        return self.evidence.weigh(checked, self.likeness(read), lines)

    def features(self, checked: Sequence[CheckedReply], reading: TextReading) -> Features:
        """Return the input of the tuned layers, those fitted on a deployment's labels, for replies.

        `checked` are the replies after their checks, and `reading` has the same replies as texts,
        in the same order.
        """
        assert self.parts.tower is not None
        traits = self.parts.tower.traits(reading.rows)
        return features_of(checked, reading.rows, traits, reading.odds + reading.shifts)

    def likeness(self, reading: TextReading) -> list[Score]:
        """Return the scores of texts by their likeness to right replies alone, with reasons.

        No check against the conversation is in them.
        """
        confidences = self._confidences(reading)
        odds, in_order = (reading.odds + reading.shifts).tolist(), reading.in_order.tolist()
        scores = [probability(x) * y for x, y in zip(odds, in_order, strict=True)]
        found = zip(
            scores,
            confidences,
            reading.is_cut,
            self._reasons_against(reading, confidences),
            strict=True,
        )
        return [Score(*each) for each in found]

    def _reasons_against(
        self, reading: TextReading, confidences: Sequence[float]
    ) -> list[tuple[str, ...]]:
        """Return for each text the reasons against it, as sentences; empty where there are none.

        They are the inspector's findings. If it found none and the confidence is below `DOUBTED`,
        the reason is the model's name (`the model is often wrong on such questions`), provided that
        the same reply of a model of median ability would be surer by `NAME_EFFECT`, 0.05.
        """
        found = list(reading.findings)
        low = [at for at, each in enumerate(found) if not each and confidences[at] < DOUBTED]
        forest = self.parts.forest
        if not low or forest is None or reading.median_odds is None:
            return found
        assert reading.forest_inputs is not None
        forest_inputs = forest.inputs_as(forest.median_name, reading.forest_inputs[low])
        odds = forest.join_with_inputs(reading.median_odds[low], forest_inputs)
        shifts = reading.shifts[low] - reading.abilities[low]
        if self.parts.abilities is not None:
            shifts += self.parts.abilities.odds_of([forest.median_name])
        others = odds, reading.distances[low], shifts, reading.in_order[low]
        for at, *numbers in zip(low, *(each.tolist() for each in others), strict=True):
            if self._confidence(*numbers) - confidences[at] >= NAME_EFFECT:
                found[at] = (OFTEN_WRONG if reading.names[at] else NOT_KNOWN,)
        return found

    def confidence(self, reading: TextReading) -> NDArray[np.float64]:
        """Return the final confidence in texts, (B,): P(right | in order) x P(in order).

        A reply is in order if it answers the question and agrees with itself.
        """
        return np.array(self._confidences(reading))

    def _confidences(self, reading: TextReading) -> list[float]:
        """Return the final confidence in each text: P(right | in order) x P(in order).

        A reply is in order if it answers the question and agrees with itself.
        """
        numbers = reading.odds, reading.distances, reading.shifts, reading.in_order
        return [*map(self._confidence, *(each.tolist() for each in numbers))]

    def _confidence(self, odds: float, distance: float, shift: float, in_order: float) -> float:
        """Return one text's final confidence from its numbers.

        The recalibration curve of the checkpoint is applied to the log-odds `odds`; the result
        moves towards the base rate for a `distance` above 1, then by the log-odds `shift`, and is
        multiplied by `in_order`, P(the reply answers the question and agrees with itself).
        """
        score, curve = probability(odds), self.config.recalibration
        right = temper_confidence(
            curve.apply(score) if curve else score, distance, self.config.base_rate
        )
        return shift_confidence(right, shift) * in_order


def load_embedded(folder: Path) -> EmbeddedCalibrator:
    """Load the checkpoint in a folder as a scorer.

    Raises CheckpointError for an unusable folder.
    """
    found = read_checkpoint(folder)
    return EmbeddedCalibrator(found.config, found.tokenizer, found.parts)
