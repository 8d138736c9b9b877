"""The paper's production workflows and cost tables, for labelled replies."""

__all__ = ["workflow_tables", "workflows"]
