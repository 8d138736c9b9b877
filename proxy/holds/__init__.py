"""Held replies: stored, bound to their request, waited for, fetched."""

__all__ = ["binding", "held", "hold", "ownership", "waiting"]
