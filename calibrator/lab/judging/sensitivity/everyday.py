"""Sixty everyday questions, each with a right and a plausible wrong answer.

They are in `everyday.yaml`, were written for this project, and are a test set: no calibrator is
trained or tuned on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
import yaml

from calibrator.metrics.metrics import Floats, auroc
from calibrator.scorer import Item

Form = Literal["short", "sentence", "both"]
FORMS: tuple[Form, ...] = ("short", "sentence", "both")
NO_NAME = ""
# A small, a medium and a large model may answer such questions, or one without a name.
SOURCE_MODELS = (NO_NAME, "llama-3.2-3b-instruct", "gpt-4o-mini", "claude-sonnet-4.5")


@dataclass(frozen=True, slots=True)
class EverydayQuestion:
    """A question with a right and a wrong answer; `{}` in `sentence` is their place."""

    domain: str
    question: str
    sentence: str
    right: str
    wrong: str

    def items(self, form: Form, model: str) -> tuple[Item, Item]:
        """Return the right and the wrong answer as items for a scorer, in this order.

        With the form `sentence` the answer is put into the question's sentence; otherwise it is
        alone. `model` is the source model's name; an empty one gives no name.
        """
        frame = self.sentence if form == "sentence" else "{}"
        name = model or None
        right, wrong = (
            Item(self.question, frame.format(text), name) for text in (self.right, self.wrong)
        )
        return right, wrong


@dataclass(frozen=True, slots=True)
class EverydayFigures:
    """Figures of a scorer on everyday answers in one form, with one model's name.

    `form` is short, sentence, or both together; `model` is empty for no name. `right` and `wrong`
    are mean confidences.
    """

    form: str
    model: str
    pairs: int
    auroc: float
    in_order: float
    right: float
    wrong: float


@cache
def everyday_questions() -> tuple[EverydayQuestion, ...]:
    """Return the sixty questions, in the order of the file; they are read once."""
    text = (
        files("calibrator.lab.judging.sensitivity")
        .joinpath("everyday.yaml")
        .read_text(encoding="utf-8")
    )
    return tuple(EverydayQuestion(**each) for each in yaml.safe_load(text))


def everyday_items() -> list[Item]:
    """Return every question, short and in a sentence, right and wrong, for every source model.

    The order is by source model, form, question, and right before wrong.
    """
    return [
        item
        for model in SOURCE_MODELS
        for form in ("short", "sentence")
        for question in everyday_questions()
        for item in question.items(form, model)
    ]


def everyday_figures(confidence: Sequence[float] | Floats) -> list[EverydayFigures]:
    """Return the figures for the confidences of `everyday_items`, in its order.

    There is one entry for each source model and form (`short`, `sentence`, `both`), by model.
    Raises ValueError for another number of confidences.
    """
    shape = (len(SOURCE_MODELS), 2, len(everyday_questions()), 2)
    each = np.asarray(confidence, dtype=np.float64).reshape(shape)
    found = []
    for model, of_model in zip(SOURCE_MODELS, each, strict=True):
        parts = {"short": of_model[:1], "sentence": of_model[1:], "both": of_model}
        for form in FORMS:
            right, wrong = parts[form][..., 0].ravel(), parts[form][..., 1].ravel()
            found.append(
                EverydayFigures(
                    form=form,
                    model=model,
                    pairs=len(right),
                    auroc=auroc(np.repeat([1, 0], len(right)), np.concatenate([right, wrong])),
                    in_order=float(np.mean((right > wrong) + 0.5 * (right == wrong))),
                    right=float(right.mean()),
                    wrong=float(wrong.mean()),
                )
            )
    return found
