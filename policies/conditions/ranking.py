"""The rank of a confidence among others: counts by value, and the counts of recent replies.

recent = RecentConfidences()                # one for each policy and model
facts.share_below = recent.share_below(0.31)   # 0.04: 4 % of recent replies were less sure
recent.add(0.31)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

RESOLUTION: Final = 10_000
"""The number of bins: confidences are distinguished to four decimals, as they are shown."""

WINDOW: Final = 10_000
LEAST_KNOWN: Final = 100


class Counts:
    """Counts in bins numbered from 0; a Fenwick tree sums those below a bin in O(log bins)."""

    def __init__(self, counts: Sequence[int]) -> None:
        """Build the tree in linear time from the count of each bin."""
        self.total = sum(counts)
        self._bins = len(counts)
        self._sums = [0] * (len(counts) + 1)
        for position, count in enumerate(counts, start=1):
            self._sums[position] += count
            if (parent := position + (position & -position)) <= len(counts):
                self._sums[parent] += self._sums[position]

    def add(self, position: int, count: int = 1) -> None:
        """Add `count` to the bin `position` (from 0) and to `total`; a negative count removes."""
        self.total += count
        position += 1
        while position <= self._bins:
            self._sums[position] += count
            position += position & -position

    def below(self, position: int) -> int:
        """Return the sum of the counts in the bins 0 to `position` - 1."""
        count = 0
        while position > 0:
            count += self._sums[position]
            position &= position - 1
        return count


def bin_of(confidence: float, bins: int) -> int:
    """Return the index, 0 to `bins` - 1, of a confidence (0 to 1) among equal bins.

    1.0 is in the last.
    """
    return min(int(confidence * bins), bins - 1)


class RecentConfidences:
    """The confidences of the last `window` replies, for `lowest_share`, in constant memory."""

    def __init__(self, window: int = WINDOW, least_known: int = LEAST_KNOWN) -> None:
        """Begin without replies; `share_below` needs at least `least_known` of them."""
        self._counts = Counts([0] * RESOLUTION)
        self._bins: deque[int] = deque()
        self._window = window
        self._least_known = least_known

    def add(self, confidence: float) -> None:
        """Remember the confidence (0 to 1) of a reply, and forget the oldest beyond the window."""
        position = bin_of(confidence, RESOLUTION)
        self._counts.add(position)
        self._bins.append(position)
        if len(self._bins) > self._window:
            self._counts.add(self._bins.popleft(), -1)

    def share_below(self, confidence: float) -> float | None:
        """Return the share, 0 to 1, of recent replies that were less sure than `confidence`.

        Half of the replies in the same bin (of width 0.0001) count as less sure. Return None where
        fewer than `least_known` replies are known.
        """
        if self._counts.total < self._least_known:
            return None
        position = bin_of(confidence, RESOLUTION)
        below, upto = self._counts.below(position), self._counts.below(position + 1)
        return (below + upto) / 2 / self._counts.total
