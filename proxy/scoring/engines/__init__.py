"""Calibrators that run elsewhere, asked over HTTP."""

__all__ = ["opening", "protocol"]
