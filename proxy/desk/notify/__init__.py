"""Tells browsers and webhooks what happens at the desk."""

__all__ = ["feed", "webhooks"]
