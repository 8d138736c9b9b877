"""Models that are asked beyond the first call: several at once, a stronger one, one to clarify."""

__all__ = ["calls", "clarify", "parallel_calls"]
