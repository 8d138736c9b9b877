"""Repeated requests for a held reply: they are counted, and logged now and then.

An agent that asks every two seconds for an hour is one exchange, not 1,800, and a few log lines.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST_REVIEWS: Final = 10_000


class PolledReply:
    """A held reply that was requested again: how often in this process, and the last result."""

    def __init__(self, review_id: str) -> None:
        self.review_id = review_id
        self.count = 0
        self._last: tuple[str | None, str | None] | None = None

    def is_news(self, action: str | None, error: str | None) -> bool:
        """Return whether a log line is worth writing, and remember this result.

        It is for another result than before, and for 1, 10, 100, 1,000 polls.
        """
        is_other = self._last != (action, error)
        self._last = action, error
        return is_other or f"{self.count}".strip("0") == "1"


class Polls:
    """The polled replies of a proxy; beyond `most` the least recent one is forgotten."""

    def __init__(self, most: int = MOST_REVIEWS) -> None:
        self._most = most
        self._of_review: OrderedDict[str, PolledReply] = OrderedDict()

    def count(self, review_id: str) -> PolledReply:
        """Count another request for a held reply; return its count in this process."""
        polled_reply = self._of_review.pop(review_id, None) or PolledReply(review_id)
        self._of_review[review_id] = polled_reply
        if len(self._of_review) > self._most:
            self._of_review.popitem(last=False)
        polled_reply.count += 1
        return polled_reply
