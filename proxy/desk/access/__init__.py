"""Access to the review desk: who may use it, and how people log in."""

__all__ = ["guard", "issuer", "local_token", "sessions", "single_sign_on"]
