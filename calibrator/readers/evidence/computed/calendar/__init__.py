"""Questions about dates, weekdays and times of day with a computable answer."""

__all__ = ["dates", "reading", "times"]
