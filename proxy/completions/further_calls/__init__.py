"""Further calls: several at once, fallback, opinions, a judge."""

__all__ = ["calls", "fallbacks", "judging", "opinions", "parallel_calls"]
