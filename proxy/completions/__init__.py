"""The six steps of a completion: parse, call upstream, score, decide, apply, record."""

__all__ = [
    "apply",
    "decide",
    "escalate",
    "fetched_responses",
    "flow",
    "generated_images",
    "job",
    "random_audit",
    "recording",
    "services",
    "surfaces",
]
