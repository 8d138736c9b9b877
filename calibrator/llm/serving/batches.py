"""Plan which rows are computed together, and which common beginnings are computed once.

A language model that is read at its last position costs in proportion to its tokens, padding
included. So rows of similar lengths share a batch, up to a budget of tokens, and a common beginning
of several rows (the choices of one question, the placeholder image) is read once. No torch here.
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
        """Return for each image the place of its first token and the place after its last.

        `image_id` is the token that images have in `ids`.
        """
        found: list[tuple[int, int]] = []
        end = 0
        for image in self.images:
            start = self.ids.index(image_id, end)  # type: ignore[arg-type]  # images imply an id
            end = start + image.tokens
            found.append((start, end))
        return found

    def cut(self, end: int, image_id: int | None) -> ModelRow:
        """Return the row's first `end` tokens with the images that are whole within them.

        `end` may not be inside an image.
        """
        inside = [last <= end for _, last in self.spans(image_id)]
        return ModelRow(self.ids[:end], self.images[: sum(inside)])


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of rows, given by their places.

    All begin with the same `shared` tokens. The first `start` of these were read before; the rest
    of them are read once for the whole batch.
    """

    places: list[int]
    start: int
    shared: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The size of a batch, and the cost of a pass beside its tokens."""

    tokens: int  # of a batch, padding included
    pass_tokens: int  # an extra pass pays if it saves more tokens, padding included, than these


def count_common(one: ModelRow, other: ModelRow, image_id: int | None) -> int:
    """Return how many tokens two rows begin with in common; both keep at least one more.

    The common part ends before an image that they do not share.
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
    """Return whether a row is longer than `prefix` and begins with its tokens and images."""
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
    """Return batches in which each of `places`, positions among `rows`, occurs once.

    Rows that begin with `kept`, a beginning that is already computed, continue from it.
    """
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
                batches += _fill_batches(rows, group, start, shared, budget)
        batches += _fill_batches(rows, alone, start, start, budget)
    return batches


def _groups(
    rows: Sequence[ModelRow],
    places: Iterable[int],
    start: int,
    pass_tokens: int,
    image_id: int | None,
) -> Iterator[tuple[list[int], int]]:
    """Yield groups of places whose rows share a beginning that is read once, with its length.

    Other rows come alone, with `start`. A group is formed where it saves more than `pass_tokens`.
    Rows are visited in the order of their tokens. Each joins the previous group, opens one with
    that group's last row, or one of its own, whichever saves most.
    """

    def worth(group: list[int], shared: int) -> Iterator[tuple[list[int], int]]:
        """Yield the group if it saves a pass, else its rows alone."""
        if (len(group) - 1) * (shared - start) > pass_tokens:
            yield group, shared
        else:
            yield from (([place], start) for place in group)

    group: list[int] = []
    shared = start
    for place in sorted(places, key=lambda at: (tuple(map(id, rows[at].images)), rows[at].ids)):
        common = count_common(rows[group[-1]], rows[place], image_id) if group else start
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


def _fill_batches(
    rows: Sequence[ModelRow], places: Sequence[int], start: int, shared: int, budget: Budget
) -> Iterator[Batch]:
    """Yield batches of the rows at these places, which share their first `shared` tokens.

    The longest come first, so that lack of memory shows at once. A batch ends before its padding
    costs more than another pass.
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
