"""`pinocchio mcp`: scores, and the review desk, as tools of an MCP server."""

__all__ = ["command"]
