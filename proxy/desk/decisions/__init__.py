"""What reviewers see and decide, without HTTP."""

__all__ = ["basis", "desk", "standing", "unseen", "waiting_calls"]
