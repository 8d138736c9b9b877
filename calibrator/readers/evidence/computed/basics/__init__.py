"""What all checks by computing share: numbers, answers, word lists and the result."""

__all__ = ["answers", "numbers", "verdict", "word_lists"]
