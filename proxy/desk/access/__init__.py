"""Access to the review desk: who may use it, and how people log in."""

__all__ = ["guard", "issuer", "links", "local_token", "login", "sessions", "single_sign_on"]
