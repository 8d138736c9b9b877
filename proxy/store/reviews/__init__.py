"""Held and audited replies, their queue, their history, and the outbox."""

__all__ = ["audit_writer", "events", "held_replies", "outbox", "polls", "queue"]
