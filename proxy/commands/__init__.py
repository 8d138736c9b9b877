"""Commands of whoever runs a proxy, reviews its replies or learns from them, one file each."""

__all__ = [
    "audit",
    "export",
    "feedback",
    "keys",
    "learning",
    "policies",
    "recalibrate",
    "record",
    "serve_and_reviews",
    "tune",
]
