"""What all formats share: their interface, edits, and the reading of OpenAI objects."""

__all__ = ["edits", "format", "logprobs", "openai"]
