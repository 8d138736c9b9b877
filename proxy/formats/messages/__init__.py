"""Anthropic's messages: whole replies and streams."""

__all__ = ["messages", "messages_stream"]
