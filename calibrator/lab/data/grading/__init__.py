"""Grading of a reply by the right answer: exact, options, numbers, formulas, words, or a rubric."""

__all__ = ["graders", "rubric"]
