"""Which rows are computed together, and what of them is computed once.

A language model that is read at its last position costs what its tokens cost, padding included. So
rows of like lengths share a batch, up to a budget of tokens, and what several rows begin with alike
(the choices of one question, the placeholder image) is read once. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from calibrator.llm.serving.pixels import Pixels


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A prompt's ids with its images, in the order of their tokens."""

    ids: list[int]
    images: tuple[Pixels, ...] = ()

    def spans(self, image_id: int | None) -> list[tuple[int, int]]:
        """Of each image, its first token and the one after its last."""
        found: list[tuple[int, int]] = []
        end = 0
        for image in self.images:
            start = self.ids.index(image_id, end)  # type: ignore[arg-type]  # images: it is there
            end = start + image.tokens
            found.append((start, end))
        return found

    def cut(self, end: int, image_id: int | None) -> ModelRow:
        """The first `end` tokens, which contain every image whole or not at all."""
        inside = [last <= end for _, last in self.spans(image_id)]
        return ModelRow(self.ids[:end], self.images[: sum(inside)])


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows by their places.

    All begin with the same `shared` tokens, of which `start` have been read before; the others are
    read once for all of them.
    """

    places: list[int]
    start: int
    shared: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What a batch may hold, and what a pass costs beside its tokens."""

    tokens: int  # of a batch, padding included
    pass_tokens: int  # a pass of its own pays where it saves more tokens, padding too, than these


def alike(one: ModelRow, other: ModelRow, image_id: int | None) -> int:
    """How many tokens two rows begin with in common; both have at least one more.

    It ends before an image that they do not share.
    """
    most = min(len(one.ids), len(other.ids)) - 1
    pairs = zip(one.ids[:most], other.ids[:most], strict=True)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), most)
    for at, (start, end) in enumerate(one.spans(image_id)):
        is_shared = at < len(other.images) and one.images[at] is other.images[at]
        if start < same and not (is_shared and end <= same):
            return start
    return same


def begins_with(row: ModelRow, prefix: ModelRow) -> bool:
    """Whether a row is longer than `prefix` and starts with its tokens and images."""
    length = len(prefix.ids)
    return (
        len(row.ids) > length
        and row.images[: len(prefix.images)] == prefix.images
        and row.ids[:length] == prefix.ids
    )


def plan(
    rows: Sequence[ModelRow],
    places: Sequence[int],
    budget: Budget,
    kept: ModelRow | None,
    image_id: int | None,
) -> list[Batch]:
    """Batches in which each of `places` occurs once; rows that begin with `kept` go on from it."""
    on_kept = {at for at in places if kept is not None and begins_with(rows[at], kept)}
    batches: list[Batch] = []
    for start, chosen in (
        (0 if kept is None else len(kept.ids), on_kept),
        (0, set(places) - on_kept),
    ):
        alone: list[int] = []
        for group, shared in _groups(rows, chosen, start, budget.pass_tokens, image_id):
            if len(group) == 1:
                alone += group
            else:
                batches += _filled(rows, group, start, shared, budget)
        batches += _filled(rows, alone, start, start, budget)
    return batches


def _groups(
    rows: Sequence[ModelRow],
    places: Iterable[int],
    start: int,
    pass_tokens: int,
    image_id: int | None,
) -> Iterator[tuple[list[int], int]]:
    """Rows whose common part is read once where that saves a pass, with its length; others alone.

    Neighbours in the order of their tokens: each joins the group before it, opens one with its last
    row, or one of its own, whichever saves the most.
    """

    def worth(group: list[int], shared: int) -> Iterator[tuple[list[int], int]]:
        if (len(group) - 1) * (shared - start) > pass_tokens:
            yield group, shared
        else:
            yield from (([place], start) for place in group)

    group: list[int] = []
    shared = start
    for place in sorted(places, key=lambda at: (tuple(map(id, rows[at].images)), rows[at].ids)):
        common = alike(rows[group[-1]], rows[place], image_id) if group else start
        both = common if len(group) == 1 else min(common, shared)
        saved = (len(group) - 1) * (shared - start)
        joined = len(group) * (both - start)
        parted = saved - (shared - start) + (common - start)
        if group and joined >= max(saved, parted):
            group.append(place)
            shared = both
        elif len(group) > 1 and parted > saved:
            yield from worth(group[:-1], shared)
            group, shared = [group[-1], place], common
        else:
            yield from worth(group, shared)
            group, shared = [place], start
    yield from worth(group, shared)


def _filled(
    rows: Sequence[ModelRow], places: Sequence[int], start: int, shared: int, budget: Budget
) -> Iterator[Batch]:
    """The longest first: if memory is short, that is seen at once.

    A batch ends before its padding costs more than the pass of another one.
    """
    batch: list[int] = []
    padding = 0
    for place in sorted(places, key=lambda at: -len(rows[at].ids)):
        longest = len(rows[batch[0] if batch else place].ids)
        padding += longest - len(rows[place].ids)
        is_full = (longest - shared) * (len(batch) + 1) > budget.tokens
        if batch and (is_full or padding > budget.pass_tokens):
            yield Batch(batch, start, shared)
            batch, padding = [], 0
        batch.append(place)
    if batch:
        yield Batch(batch, start, shared)
