"""The check whether a request is of a kind of task that the calibrator was trained on.

Boosted trees read the form of the request and a score of its wording. They never see the reply, a
document, or the calibrator's own features, in which a benchmark's question and a customer's are
close together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.task import form, wording
from calibrator.readers.evidence.task.request import read_request
from calibrator.readers.evidence.task.wording import TaskWording

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

PREFIX: Final = "task."
_TREES, _WORDING = "trees.", "wording."
WIDTH: Final = form.WIDTH + wording.WIDTH


class TaskFamiliarity:
    """A classifier of familiar and unfamiliar tasks; `state` has arrays without the prefix.

    Raises KeyError or ValueError for arrays that are missing or of another size.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        self._state = dict(state)
        self.wording = TaskWording.from_state(arrays_under(state, _WORDING))
        self._trees = Trees(arrays_under(state, _TREES), WIDTH)
        self._threshold = float(state["threshold"][0])

    def strangeness(self, conversation: Conversation, *, has_tools: bool = False) -> float:
        """Return the log-odds that the task is unfamiliar; above 0 it counts as unfamiliar.

        `has_tools` says whether tools were offered with the request.
        """
        request = read_request(conversation, has_tools=has_tools)
        row = np.array(
            [[*form.form_of(request), *self.wording.read(wording.places_of(request))]], np.float32
        )
        return float(self.of_rows(row)[0])

    def of_rows(self, rows: Floats) -> NDArray[np.float64]:
        """Return the strangeness (B,) of rows (B, WIDTH) of numbers of the form and the wording."""
        return self._trees.read(rows) - self._threshold

    def is_unfamiliar(self, conversation: Conversation, *, has_tools: bool = False) -> bool:
        """Return whether no task like this one was in the training data."""
        return self.strangeness(conversation, has_tools=has_tools) > 0

    def to_state(self) -> dict[str, Array]:
        """Return the arrays for the checkpoint's weights file."""
        return {PREFIX + name: array for name, array in self._state.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> TaskFamiliarity | None:
        """Load the arrays of `to_state`; None for weights without them."""
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None
