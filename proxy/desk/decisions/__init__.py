"""What reviewers see, decide and edit, without HTTP."""

__all__ = ["basis", "desk", "editing", "rules", "standing", "times", "unseen", "waiting_calls"]
