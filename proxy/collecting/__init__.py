"""Answers of models to many questions: asked through the upstreams, kept as they come."""

__all__ = ["asking", "bill", "eliciting", "kept_answers", "run"]
