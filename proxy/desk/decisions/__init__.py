"""What reviewers see and decide, without HTTP."""

__all__ = ["basis", "desk", "rules", "standing", "unseen", "waiting_calls"]
