"""OpenAI's responses: whole replies, items and streams."""

__all__ = ["responses", "responses_items"]
