"""Tells browsers and webhooks what happens at the desk.

`webhooks.py` delivers; what a message says, and its signature, is in `webhook_messages.py`.
"""

__all__ = ["feed", "webhooks"]
