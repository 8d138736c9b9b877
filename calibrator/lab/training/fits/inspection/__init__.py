"""Fits the inspector, on lessons that are right or wrong by construction."""

__all__ = ["config", "lessons", "training"]
