"""Who may come to the review desk, and how people log in."""

__all__ = ["guard", "login", "sessions"]
