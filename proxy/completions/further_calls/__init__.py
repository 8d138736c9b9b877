"""Models that are asked beyond the first call: several at once, a stronger one, one to clarify,
others for their opinion.
"""

__all__ = ["calls", "clarify", "opinions", "parallel_calls"]
