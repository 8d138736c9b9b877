"""A model fitted on own requests separates familiar from unfamiliar tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrator.errors import TrainingError
from calibrator.lab.training.fits.task.examples import own_examples
from calibrator.lab.training.fits.task.fitting import TaskConfig, fit_familiarity, read
from calibrator.lab.training.fits.task.variants import vary_examples
from calibrator.readers.evidence.conversation import Conversation, Turn
from calibrator.readers.evidence.familiarity import PREFIX, TaskFamiliarity

Array = NDArray[np.generic]

SMALL = TaskConfig(trees=40, leaf_rows=5)
KNOWN = (
    "Who composed the opera Carmen?",
    "What is 30% of 90?",
    "How many moons does Neptune have?",
    "A box holds 12 eggs. How many eggs are in 7 boxes, if 5 eggs are broken?",
    "Which metal is liquid at room temperature?\n\nA. iron\nB. mercury\nC. zinc\nD. gold",
)
UNFAMILIAR = (
    "Summarize: The team met on Friday, agreed on the new plan and set a date for the review.",
    "Translate into Swedish: The shop is closed today.",
    "Extract the name and the price as JSON: The lamp Vega costs 35 euros.",
    "Rewrite this more politely: Move your car.",
    "Hello, how are you today?",
    "Write an email to my teacher about my absence.",
    "Classify the sentiment of this review as positive or negative: Lovely room, great view!",
)
POLICY = "You are the assistant of a hotel. Breakfast is from 7 to 10. Never promise a discount."


@pytest.fixture(scope="module")
def state() -> dict[str, Array]:
    """Return the arrays of a small model."""
    own = list(own_examples())
    return fit_familiarity(read([*own, *vary_examples(own, 0)]), SMALL)


@pytest.fixture(scope="module")
def model(state: Mapping[str, Array]) -> TaskFamiliarity:
    """Return a small model."""
    found = TaskFamiliarity.from_state(state)
    assert found is not None
    return found


def test_most_bare_questions_are_familiar(model: TaskFamiliarity) -> None:
    """A question of a known kind is familiar without a benchmark's wording."""
    flags = [model.is_unfamiliar(Conversation(request)) for request in KNOWN]
    assert sum(flags) <= 1


def test_most_other_tasks_are_unfamiliar(model: TaskFamiliarity) -> None:
    """Summaries, translations, extraction, chat and writing are unfamiliar."""
    flags = [model.is_unfamiliar(Conversation(request)) for request in UNFAMILIAR]
    assert sum(flags) >= len(UNFAMILIAR) - 1


def test_a_policy_makes_a_task_less_familiar(model: TaskFamiliarity) -> None:
    """A system message with rules makes a question less familiar."""
    for question in KNOWN:
        plain = model.strangeness(Conversation(question))
        assert model.strangeness(Conversation(question, POLICY)) > plain


def test_a_generic_system_message_changes_nothing(model: TaskFamiliarity) -> None:
    """A system message "You are a helpful assistant" changes nothing."""
    for question in KNOWN:
        plain = model.strangeness(Conversation(question))
        assert model.strangeness(Conversation(question, "You are a helpful assistant.")) == plain


def test_arrays_survive_a_checkpoint(model: TaskFamiliarity, state: Mapping[str, Array]) -> None:
    """A model survives its arrays, beside arrays of other parts."""
    assert all(name.startswith(PREFIX) for name in model.to_state())
    again = TaskFamiliarity.from_state({**model.to_state(), "tower.bias": np.zeros(3)})
    assert again is not None
    for request in KNOWN + UNFAMILIAR:
        conversation = Conversation(request)
        assert again.strangeness(conversation) == model.strangeness(conversation)
    assert sum(array.nbytes for array in state.values()) < 300_000


def test_weights_without_the_part_give_none() -> None:
    """Weights without the part give no model."""
    assert TaskFamiliarity.from_state({"tower.bias": np.zeros(3)}) is None


@pytest.mark.parametrize("name", ["wording.weights", "wording.known", "trees.feature", "threshold"])
def test_missing_arrays_are_refused(state: Mapping[str, Array], name: str) -> None:
    """Missing arrays are refused at load."""
    damaged = {key: array for key, array in state.items() if key != PREFIX + name}
    with pytest.raises(KeyError, match=name.split(".")[-1]):
        TaskFamiliarity.from_state(damaged)


def test_tables_of_another_size_are_refused(state: Mapping[str, Array]) -> None:
    """A table of wording with too few buckets is refused at load."""
    with pytest.raises(ValueError, match="another size"):
        TaskFamiliarity.from_state({**state, PREFIX + "wording.weights": np.zeros(9, np.int8)})


def test_one_side_alone_teaches_nothing() -> None:
    """Without known or without unfamiliar requests the fit is refused."""
    own = list(own_examples())
    for is_known in (True, False):
        one_side = read([example for example in own if example.is_known == is_known])
        with pytest.raises(TrainingError, match="known and unfamiliar"):
            fit_familiarity(one_side, SMALL)


def test_the_same_examples_give_the_same_arrays(state: Mapping[str, Array]) -> None:
    """The same examples give the same arrays."""
    own = list(own_examples())
    again = fit_familiarity(read([*own, *vary_examples(own, 0)]), SMALL)
    assert all(np.array_equal(again[name], array) for name, array in state.items())


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\0\ud800" * 9, "🙂" * 9_000, "?" * 100_000, "词" * 9]
)
def test_any_text_gets_a_number(model: TaskFamiliarity, text: str) -> None:
    """Hostile text gets a finite number within 50 ms."""
    begin = time.process_time()
    conversation = Conversation(text, text, (Turn("user", text),) * 40, (text,) * 40)
    assert np.isfinite(model.strangeness(conversation, has_tools=True))
    assert time.process_time() - begin < 0.05
