"""Further calls: several at once, escalation, fallback, clarification, opinions, a judge."""

__all__ = ["calls", "clarify", "fallbacks", "judging", "opinions", "parallel_calls", "revising"]
