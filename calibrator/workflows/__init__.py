"""The paper's production workflows and cost tables, on labelled replies."""

__all__ = ["workflow_tables", "workflows"]
