"""Messages for chat channels, with links to pages where one reviewer decides."""

__all__ = ["chat", "link_pages", "links"]
