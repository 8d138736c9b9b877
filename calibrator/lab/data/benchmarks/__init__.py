"""Collected answers to benchmarks: tasks, labelled rows, splits and audits."""

__all__ = ["answered", "label_audit", "registry", "self_preference", "splits", "survey", "tasks"]
