"""Calibrators that run elsewhere, asked over HTTP."""

__all__ = ["opening", "scorer_protocol"]
