"""Questions about dates, weekdays and times of day whose answer can be computed."""

__all__ = ["dates", "reading", "times"]
