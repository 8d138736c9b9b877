"""The six steps of a completion: parse, call upstream, score, decide, apply, record."""

__all__ = ["decide", "fetched_responses", "flow", "generated_images", "random_audit", "services"]
