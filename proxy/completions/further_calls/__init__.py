"""Models that are asked beyond the first call: several at once, a stronger one, one that steps in,
one to clarify, others for their opinion.
"""

__all__ = ["calls", "clarify", "fallbacks", "opinions", "parallel_calls"]
