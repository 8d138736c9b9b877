"""Fits the readers' arrays: inspection, knowledge, opinion, evidence and calls."""

__all__ = ["calls", "opinion"]
