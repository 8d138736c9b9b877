"""Who may come to the review desk, and how people log in."""

__all__ = ["guard", "issuer", "links", "local_token", "login", "sessions", "single_sign_on"]
