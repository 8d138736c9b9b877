"""Collects answers of models, to train and to judge calibrators."""

__all__ = ["asking", "bill", "eliciting", "kept_answers", "run"]
