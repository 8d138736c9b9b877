"""`admin` and `webhooks` of proxy.yaml: the review desk, its logins, and who is notified."""

__all__ = ["admin", "oidc", "webhooks"]
