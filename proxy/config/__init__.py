"""The settings of `proxy.yaml`, read once, strictly, into immutable values."""

__all__ = [
    "allowed_surfaces",
    "engines",
    "file_watcher",
    "guardrails",
    "images",
    "policy_book",
    "problems",
    "sections",
    "setup",
    "telemetry",
    "upstreams",
    "workers",
]
