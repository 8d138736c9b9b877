"""The settings of `proxy.yaml`, read once, strictly, into immutable values."""

__all__ = ["file_watcher", "policy_book", "sections", "setup"]
