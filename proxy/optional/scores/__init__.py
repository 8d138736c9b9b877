"""The clients of Langfuse and Phoenix."""

__all__ = ["scores"]
