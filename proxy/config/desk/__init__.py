"""`admin` and `webhooks` of proxy.yaml: where people decide, how they log in, and who is told."""

__all__ = ["admin", "oidc", "webhooks"]
