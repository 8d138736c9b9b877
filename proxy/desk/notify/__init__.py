"""Notifies browsers and webhooks of what happens at the desk.

`webhooks.py` delivers messages; `webhook_messages.py` has their content and signature.
"""

__all__ = ["feed", "webhook_messages", "webhooks"]
