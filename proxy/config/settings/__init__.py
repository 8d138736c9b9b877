"""The sections of `proxy.yaml`, and their problems."""

__all__ = [
    "admin",
    "allowed_surfaces",
    "engines",
    "guardrails",
    "images",
    "oidc",
    "problems",
    "section",
    "telemetry",
    "upstreams",
    "webhooks",
    "workers",
]
