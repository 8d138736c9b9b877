"""Decisions on the queue and readings of it, as another process makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.store.queue import ReviewQueue
from proxy.store.retention import Retention
from proxy.store.reviews.held_replies import HELD


@contextmanager
def _queue(url: str) -> Iterator[ReviewQueue]:
    queue = ReviewQueue(url)
    try:
        yield queue
    finally:
        queue.close()


def decide(url: str, id: str, state: str, reviewer: str = "alice") -> bool:
    """Release or reject a reply; return whether it was there and still open."""
    with _queue(url) as queue:
        held = queue.get(id)
        return held is not None and queue.decide(held, state, reviewer) is not None


def listed(url: str, state: str = HELD, limit: int = 100) -> list[str]:
    """Return the ids on the first page."""
    with _queue(url) as queue:
        return [each.id for each in queue.page(state, limit)]


def expire(url: str) -> None:
    """Mark all replies as expired on which nobody decided in time."""
    retention = Retention(url, keep_days=0, keep_content_days=30)
    try:
        retention.expire()
    finally:
        retention.close()
