"""Batches of rows of a language model: complete, within the budget, with shared beginnings."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibrator.llm.serving.batches import Batch, Budget, ModelRow, begins_with, count_common, plan
from calibrator.llm.serving.pixels import Pixels

IMAGE = 1  # the token for a part of an image
FREE = Budget(tokens=10_000, pass_tokens=10)


def picture(tokens: int = 3) -> Pixels:
    return Pixels(np.zeros((4 * tokens, 8), np.float32), (1, 2, 2 * tokens), tokens)


def plain(*ids: int) -> ModelRow:
    return ModelRow(list(ids))


def planned(
    rows: list[ModelRow], budget: Budget = FREE, kept: ModelRow | None = None
) -> list[Batch]:
    return plan(rows, range(len(rows)), budget, kept, IMAGE)


@given(
    st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=30), max_size=25),
    st.integers(1, 60),
    st.integers(0, 20),
)
def test_every_row_is_in_one_batch_within_the_budget(
    prompts: list[list[int]], tokens: int, pass_tokens: int
) -> None:
    """Each row is in one batch, and only a single row may exceed the budget."""
    rows = [ModelRow(ids) for ids in prompts]
    kept = ModelRow([2, 3])
    batches = planned(rows, Budget(tokens, pass_tokens), kept)
    assert sorted(place for batch in batches for place in batch.places) == list(range(len(rows)))
    for batch in batches:
        longest = max(len(rows[place].ids) for place in batch.places) - batch.shared
        assert len(batch.places) == 1 or longest * len(batch.places) <= tokens
        assert longest > 0
        begins = {tuple(rows[place].ids[: batch.shared]) for place in batch.places}
        assert len(begins) == 1
        assert batch.start == (2 if begins_with(rows[batch.places[0]], kept) else 0)


def test_rows_of_like_lengths_are_computed_together() -> None:
    """Rows of similar lengths share a batch."""
    rng = random.Random(0)
    rows = [ModelRow(rng.choices(range(2, 99), k=length)) for length in (10, 90, 11, 88, 9, 89)]
    assert [sorted(batch.places) for batch in planned(rows, Budget(300, 999))] == [
        [1, 3, 5],
        [0, 2, 4],
    ]


def test_choices_of_one_question_share_it() -> None:
    """Choices of one question share a batch that starts after it."""
    question, other = list(range(10, 40)), list(range(50, 80))
    rows = [plain(*question, at, at) for at in (2, 3)] + [plain(*other, 4), plain(*question, 5, 5)]
    batches = planned(rows)
    assert Batch([0, 1, 3], 0, 30) in batches
    assert Batch([2], 0, 0) in batches


def test_a_short_common_beginning_is_read_again() -> None:
    """A common beginning that saves less than a pass of its own is not shared."""
    rows = [plain(5, 6, 7, at, at) for at in (2, 3)]
    assert [batch.shared for batch in planned(rows)] == [0]
    assert [batch.shared for batch in planned(rows, Budget(10_000, 2))] == [3]


def test_a_lone_neighbour_does_not_shorten_what_others_share() -> None:
    """A single similar row does not shorten what the others share."""
    long = list(range(10, 40))
    rows = [plain(*long[:5], 2, 2, 2), *(plain(*long, 50 + at) for at in range(3))]
    assert Batch([1, 2, 3], 0, 30) in planned(rows)


def test_an_image_is_shared_only_when_it_is_the_same() -> None:
    """An image is shared only if it is the same object."""
    one, other = picture(), picture()
    ids = [5, IMAGE, IMAGE, IMAGE, 6, 7, 8]
    assert count_common(ModelRow([*ids, 2], (one,)), ModelRow([*ids, 3], (one,)), IMAGE) == 7
    assert count_common(ModelRow([*ids, 2], (one,)), ModelRow([*ids, 3], (other,)), IMAGE) == 1
    larger = ModelRow([5, *[IMAGE] * 5, 6], (picture(5),))
    assert count_common(ModelRow(ids, (one,)), larger, IMAGE) == 1


def test_the_last_token_is_never_shared() -> None:
    """The last token is never shared."""
    row = plain(*range(10, 60))
    assert count_common(row, row, IMAGE) == 49
    assert not begins_with(row, row)


def test_rows_with_images_of_their_own_do_not_build_on_the_placeholder() -> None:
    """A kept beginning counts only with the very image that it was read with."""
    placeholder, own = picture(), picture()
    start = [5, IMAGE, IMAGE, IMAGE]
    kept = ModelRow(start, (placeholder,))
    rows = [ModelRow([*start, 9], (placeholder,)), ModelRow([*start, 9], (own,))]
    assert {tuple(batch.places): batch.start for batch in planned(rows, kept=kept)} == {
        (0,): 4,
        (1,): 0,
    }
