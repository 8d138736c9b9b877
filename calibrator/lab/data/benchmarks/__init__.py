"""Collected answers to benchmarks: tasks, labelled rows, splits and audits."""

__all__ = ["answered", "label_checks", "registry", "splits", "survey", "tasks"]
