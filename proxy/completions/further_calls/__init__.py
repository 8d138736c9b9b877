"""Further calls of a completion: their maker, fallback, opinions, a judge."""

__all__ = ["calls", "fallbacks", "judging", "opinions"]
