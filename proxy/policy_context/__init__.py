"""What a policy uses besides the reply that is decided on: traffic, certificates, domains."""

__all__ = ["certificates", "domains", "traffic"]
