"""Held and audited replies: their queue, their history, and the outbox."""

__all__ = [
    "approvals",
    "audit_writer",
    "events",
    "held_replies",
    "outbox",
    "polls",
    "standing",
    "used_links",
]
