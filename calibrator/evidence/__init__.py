"""What can be checked about a reply: against its conversation, by computing, and by known facts."""

__all__ = ["computed", "conversation"]
