"""Grading of a reply by the right answer: exact, options, numbers, formulas, or words."""

__all__ = ["graders"]
