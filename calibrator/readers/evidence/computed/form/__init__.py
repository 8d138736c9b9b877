"""The form of a reply: counts, lengths, order, wording, language, labels."""

__all__ = ["counting", "languages", "reply_language", "short_answers", "wishes"]
