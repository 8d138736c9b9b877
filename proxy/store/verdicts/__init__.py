"""Verdicts of reviewers, and what monitors of drift go by."""

__all__ = ["drift", "feedback", "labels", "verdicts"]
