"""What a policy goes by beyond the reply before it: recent traffic, certificates."""

__all__ = ["certificates", "domains", "traffic"]
