"""Parts that a proxy loads only if its configuration, or a request, asks for them."""

__all__ = ["parts"]
