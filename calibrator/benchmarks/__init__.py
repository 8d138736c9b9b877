"""What answers are collected to, and what becomes of them: tasks, labelled rows, splits, audits."""

__all__ = ["answered", "label_audit", "registry", "self_preference", "splits", "tasks"]
