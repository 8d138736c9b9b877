"""A fit for studies that trains the shipped kind of calibrator for every fold.

The fold's rows go into a file, `calibrator.lab.training.train` runs on it as it would on any other,
and the checkpoint scores the judged rows as served. A run's folder is named by its rows, so that an
interrupted study is resumed. The parts that the folds of a study share are read once
(`calibrator.lab.training.shared_reading`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from calibrator.lab.training.run import TrainConfig, base_folder, prepare
from calibrator.lab.training.shared_reading import SharedReading
from calibrator.lab.training.train import train as run
from calibrator.loading import load_scorer
from calibrator.metrics.metrics import Floats, Ints
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_rows
from calibrator.text.word_pieces import load_tokenizer

# These parts are left out, with a message, where a fold has too few rows for them.
PARTS = ("abilities", "inspector", "calls")


def as_shipped() -> TrainConfig:
    """Return the training configuration of the shipped calibrator, without data.

    It has tower, forest, abilities, inspector, knowledge and trees for calls, but no second stage,
    which reads other replies, as rows of a study have none.
    """
    return TrainConfig(
        data=(),
        name="study",
        has_forest=True,
        has_abilities=True,
        has_inspector=True,
        has_knowledge=True,
        has_calls=True,
    )


class EmbeddedFit:
    """A `Fit` of a study; `config` says how to train, with the fold's data.

    `folder` keeps the runs, about 100 MB each. The first `trained` of the rows are all that any
    fold trains on, and the parts that fits share are read from them once; with 0 each fit reads its
    own.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        folder: Path,
        config: TrainConfig,
        say: Callable[[str], None] = print,
        trained: int = 0,
    ) -> None:
        """Keep the arguments; nothing is read or trained yet."""
        self.rows, self.folder, self.config, self.say = rows, folder, config, say
        self.trained = trained

    def __call__(self, train: Ints, judged: Ints) -> Floats:
        """Train on the rows numbered `train`; return P(correct) of those numbered `judged`, (n,).

        They are scored as served. An interrupted or finished training on the same rows in the
        folder is resumed or reused. Parts that too few rows allow are left out.
        """
        data = self._write([self.rows[i] for i in train])
        config = replace(self.config, data=(str(data),))
        place = data.parent / ("shared" if self.trained else "run")
        preparing = self._shared_reading if self.trained else prepare
        checkpoint = run(place, config, self.say, optional=PARTS, preparing=preparing)
        scorer = load_scorer(str(checkpoint))
        return score_rows(scorer, [self.rows[i] for i in judged]).confidence

    @cached_property
    def _shared_reading(self) -> SharedReading:
        """What all fits share, read from the first `trained` rows."""
        config = replace(self.config, data=(str(self._write(self.rows[: self.trained])),))
        return SharedReading(config, load_tokenizer(base_folder()), self.say)

    def _write(self, rows: Sequence[Row]) -> Path:
        """Write the rows to `rows.jsonl` in a folder named by their hash; return the file.

        A file that exists is left unchanged.
        """
        text = "".join(json.dumps(row.raw) + "\n" for row in rows)
        place = self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        place.mkdir(parents=True, exist_ok=True)
        path = place / "rows.jsonl"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        return path
