"""Recognises acts and requests by their wording, in several languages."""

__all__ = ["languages", "openings", "recognising", "topics", "wording"]
