"""Reviewers' verdicts, volunteered feedback, and the data of the drift monitors."""

__all__ = ["drift", "feedback", "labels", "statistics"]
