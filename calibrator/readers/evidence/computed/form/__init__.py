"""The form of a reply: counts, lengths, order, wording, language, labels."""

__all__ = ["counting", "labels", "languages", "reply_language", "wishes"]
