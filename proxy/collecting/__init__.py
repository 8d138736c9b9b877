"""Collects models' answers to many questions, through the upstreams, and keeps each one at once."""

__all__ = ["asking", "bill", "eliciting", "kept_answers", "run"]
