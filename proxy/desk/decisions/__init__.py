"""What reviewers see and decide, without HTTP."""

__all__ = ["basis", "desk", "rules", "standing", "times", "unseen", "waiting_calls"]
