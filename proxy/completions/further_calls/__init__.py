"""Models that are asked beyond the first call: several at once, a stronger one, one that steps in,
one to clarify, others for their opinion, one to judge.
"""

__all__ = ["calls", "clarify", "fallbacks", "judging", "opinions", "parallel_calls", "revising"]
