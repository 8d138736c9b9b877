"""Tools to examine policies before they are live: fixtures, replays, explanations, lint."""

__all__ = [
    "explanation",
    "fixtures",
    "linting",
    "matches",
    "possible",
    "promotion",
    "recorded",
    "replays",
]
