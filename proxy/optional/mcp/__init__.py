"""The tools of the MCP server."""

__all__ = ["desk", "scoring", "server"]
