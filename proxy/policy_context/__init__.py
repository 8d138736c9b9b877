"""What a policy uses besides the reply that it decides on: traffic, certificates and domains."""

__all__ = ["certificates", "domains", "traffic"]
