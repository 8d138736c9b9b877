"""Verdicts with their content, as fine-tuning reads them.

    gathered = gather(engine, since, start)     # of the replies that this very checkpoint scored
    learnt = learn_tuning(gathered, current)

Content passes through in batches and is let go: some numbers and hashes of each reply remain.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrator import (
    CheckpointOutput,
    Item,
    NotScorableError,
    Readings,
    Recalibration,
    Row,
    TunableCheckpoint,
    TuningTrial,
    message_text,
    try_tuning,
)
from policies import plural
from proxy.formats import NoAnswerError
from proxy.formats.conversation import format_of
from proxy.http.wire.json_splice import json_object
from proxy.learning.labels import Labels
from proxy.learning.recalibrating import NotLearntError, own_score, usable
from proxy.store.verdicts.labels import LabelledReply, labelled_replies, totals

Floats = NDArray[np.float64]

VERDICTS: Final = "verdict is", "verdicts are"
LEAST_LABELS: Final = 100
"""The least labels for fine-tuning: with fewer, each of five folds leaves too few to choose by."""
MOST_LABELS: Final = 2_000
"""The most labels, of which the latest are learnt from; they take some 20 MB and minutes."""
BATCH: Final = 64
SAME: Final = 0.02
"""The largest difference to the recorded confidence; beyond it another text was scored then."""


@dataclass
class LeftOut:
    """The verdicts that are not learnt from, by reason; `versions` counts other calibrators'."""

    undrawn: int = 0
    without_content: int = 0
    unreadable: int = 0
    calls: int = 0
    changed: int = 0
    versions: Counter[str] = field(default_factory=Counter)

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each reason for which verdicts were left out, with what helps."""
        if self.without_content:
            yield (
                f"{plural(self.without_content, *VERDICTS)} on replies whose content is not "
                "kept any "
                "more; `records: {keep_content_days: 90}` in proxy.yaml keeps it for longer"
            )
        for version, count in self.versions.most_common():
            yield f"{plural(count, *VERDICTS)} on confidences of {version}, another version"
        if self.undrawn:
            yield (
                f"{plural(self.undrawn, *VERDICTS)} on replies that were neither held nor "
                "drawn by the "
                "audit, which say nothing about others"
            )
        if self.unreadable:
            yield (
                f"{plural(self.unreadable, 'reply has', 'replies have')} no text to read: "
                "images, or an unknown format"
            )
        if self.calls:
            yield (
                f"{plural(self.calls, 'reply calls', 'replies call')} tools, judged by other "
                "parts, which "
                "are not fine-tuned"
            )
        if self.changed:
            yield (
                f"{plural(self.changed, 'reply scores', 'replies score')} otherwise now than "
                "then: a part of what was read is "
                "not kept, such as an earlier turn that the request only named"
            )


@dataclass(frozen=True, slots=True)
class TuningData:
    """Labelled replies in the order of time, without content, and what the checkpoint computed."""

    labels: Labels
    read: CheckpointOutput | None  # None without a reply
    left_out: LeftOut

    def readings(self) -> Readings:
        """Return the checkpoint's outputs with models, questions, verdicts and weights.

        There must be a reply.
        """
        assert self.read is not None
        replies = self.labels.replies
        return Readings(
            self.read,
            [each.model.lower() for each in replies],
            [each.question for each in replies],
            np.array([int(each.is_correct) for each in replies]),
            np.array(self.labels.weights()),
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts about these labels that a checkpoint keeps; they hold no content.

        They are dates, counts and a digest of the labels. There must be a reply.
        """
        replies, weights = self.labels.replies, self.labels.weights()
        digest = hashlib.sha256()
        for each, weight in zip(replies, weights, strict=True):
            digest.update(f"{each.request_id} {each.is_correct:d} {weight:.6g}\n".encode())
        return {
            "since": _day(replies[0].at),
            "until": _day(replies[-1].at),
            "labels": len(replies),
            "questions": len({each.question for each in replies}),
            "held": sum(each.stratum == "held" for each in replies),
            "labels_sha256": digest.hexdigest(),
        }


def _day(at: float) -> str:
    """Return a time as ISO 8601 in UTC, with seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def gather(
    engine: Any,
    since: float,
    start: TunableCheckpoint,
    *,
    is_held_only: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> TuningData:
    """Read the verdicts on replies requested since a time, and what `start` computes of each.

    The latest `MOST_LABELS` are kept, without content. `progress` is called with the number of
    further verdicts read. Raises StoreError.
    """
    left_out = LeftOut()
    batches: deque[tuple[list[LabelledReply], CheckpointOutput]] = deque(
        maxlen=MOST_LABELS // BATCH
    )
    waiting: list[tuple[LabelledReply, Item]] = []

    def read_waiting() -> None:
        """Run the checkpoint on the waiting replies, and keep those that score as recorded.

        The list of waiting replies is emptied.
        """
        if waiting:
            read = start.read([item for _, item in waiting])
            if (
                kept := _with_same_scores([one for one, _ in waiting], read, start, left_out)
            ) is not None:
                batches.append(kept)
            waiting.clear()

    strata = ("held",) if is_held_only else ("held", "audited")
    for reply in labelled_replies(engine, since, has_content=True):
        progress(1)
        item = _item_of(reply, start, strata, left_out)
        if item is not None:
            waiting.append((replace(reply, request=None, reply=None), item))
        if len(waiting) == BATCH:
            read_waiting()
    read_waiting()
    replies = [each for batch, _ in batches for each in batch]
    labels = Labels(replies, totals(engine, since, start.version), left_out.undrawn)
    return TuningData(
        labels, CheckpointOutput.join([read for _, read in batches]) if batches else None, left_out
    )


def _item_of(
    reply: LabelledReply, start: TunableCheckpoint, strata: tuple[str, ...], left_out: LeftOut
) -> Item | None:
    """Return the reply as an item to read, or None; count in `left_out` why."""
    if not reply.is_by(start.version):
        left_out.versions[reply.calibrator] += 1
    elif reply.stratum == "other":
        left_out.undrawn += 1
    elif reply.stratum not in strata:
        pass
    elif not reply.reply or not reply.request:
        left_out.without_content += 1
    elif (item := item_of(reply)) is None:
        left_out.unreadable += 1
    elif not start.learns_from(item):
        left_out.calls += 1
    else:
        return item
    return None


def item_of(reply: LabelledReply) -> Item | None:
    """Return what was scored of a reply with content, or None where it cannot be read.

    That is so without content, in an unknown format, and for several choices or images.
    """
    format, completion = format_of(reply.path), json_object(reply.reply or b"")
    request = json_object(reply.request or b"")
    if format is None or completion is None or request is None:
        return None
    try:
        choices = format.choices(completion)
        question = format.question(request)
        messages = [choice.message for choice in choices]
        answers = [message_text(message) for message in messages]
    except (NoAnswerError, NotScorableError, ValueError):
        return None
    if len(answers) != 1 or question.images:
        return None
    used, before = question.tool_use(messages[0]), question.all_messages()
    return Item(
        question.text, answers[0], reply.model, None, reply.domain, (), used, messages=before
    )


def _with_same_scores(
    replies: list[LabelledReply],
    read: CheckpointOutput,
    start: TunableCheckpoint,
    left_out: LeftOut,
) -> tuple[list[LabelledReply], CheckpointOutput] | None:
    """Return (replies, readings) of those whose scores are still those that were recorded.

    The others are counted as changed in `left_out`. None where no reply is left.
    """
    then = [own_score(each, start.version, {}) for each in replies]
    kept = [
        at
        for at, score in enumerate(then)
        if score is None or abs(score - read.confidence[at]) <= SAME
    ]
    left_out.changed += len(replies) - len(kept)
    return ([replies[at] for at in kept], read.take(kept)) if kept else None


def learn_tuning(
    gathered: TuningData,
    current: Recalibration | None = None,
    *,
    is_held_only: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> TuningTrial:
    """Train a fine-tuned version, and compare it with the checkpoint as `current` recalibrates it.

    `progress` is called after each step. Raises NotLearntError for too few labels, for labels of
    one kind, or of held replies alone without `is_held_only`.
    """
    replies = gathered.labels.replies
    if not is_held_only:
        usable(gathered.labels)
    _check_enough(replies, "; ".join(gathered.left_out.sentences()))
    readings = gathered.readings()
    groups = [(r.model, r.domain, r.team) for r in replies]
    return try_tuning(
        readings, _recalibrate_all(readings.read.confidence, current, groups), progress
    )


def learn_tuning_of_rows(
    rows: Sequence[Row],
    readings: Readings,
    current: Recalibration | None = None,
    progress: Callable[[], None] = lambda: None,
) -> TuningTrial:
    """Train on labelled rows that all count alike, and compare as `learn_tuning` does.

    Raises NotLearntError for too few rows, or rows of one kind.
    """
    _check_enough(rows)
    groups = [(r.model, r.domain, r.raw.get("team")) for r in rows]
    return try_tuning(
        readings, _recalibrate_all(readings.read.confidence, current, groups), progress
    )


def _check_enough(labelled: Sequence[LabelledReply] | Sequence[Row], left_out: str = "") -> None:
    """Refuse fewer than `LEAST_LABELS` labels, or labels of one kind; raises NotLearntError.

    `left_out` is a sentence for the message.
    """
    count = len(labelled)
    if count < LEAST_LABELS:
        raise NotLearntError(
            f"{plural(count, 'labelled reply', 'labelled replies')} with content are too few "
            f"to fine-tune on: {LEAST_LABELS} "
            f"are the least, {LEAST_LABELS - count} more, and 500 are better"
            + (f"; {left_out}" if left_out else "")
        )
    kinds = {bool(each.correct if isinstance(each, Row) else each.is_correct) for each in labelled}
    if len(kinds) == 1:
        which = "correct" if kinds.pop() else "wrong"
        raise NotLearntError(
            f"all {count} labelled replies are {which}: fine-tuning needs both kinds"
        )


def _recalibrate_all(
    own: Floats,
    current: Recalibration | None,
    groups: Sequence[tuple[str | None, str | None, str | None]],
) -> Floats:
    """Return the confidences in force, (n,), of own scores (n,); the same array without `current`.

    `groups` has the (model, domain, team) of each.
    """
    if current is None:
        return own
    pairs = zip(own.tolist(), groups, strict=True)
    return np.array([current.apply_to(score, *group) for score, group in pairs])
