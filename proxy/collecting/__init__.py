"""Answers of models to many questions: asked through the upstreams, kept as they come."""

__all__ = ["asking", "bill", "kept_answers", "run"]
