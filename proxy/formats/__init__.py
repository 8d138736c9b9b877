"""The formats that are scored, each in its own module; those in `FORMATS` have routes.

A new surface needs a class with the methods of `Format` in `format.py`, an entry in `FORMATS`, and
a name in `config/settings/allowed_surfaces.py`, by which keys are limited and metrics are counted.
"""

from __future__ import annotations

from proxy.formats.base.format import (
    MEMBER,
    Assembler,
    Choice,
    Ending,
    EventMeaning,
    Format,
    Json,
    NoAnswerError,
)
from proxy.formats.chat import ChatFormat
from proxy.formats.completions import CompletionsFormat
from proxy.formats.messages.messages import MessagesFormat
from proxy.formats.responses.responses import ResponsesFormat

CHAT = ChatFormat()
COMPLETIONS = CompletionsFormat()
RESPONSES = ResponsesFormat()
MESSAGES = MessagesFormat()
FORMATS: tuple[Format, ...] = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "FORMATS",
    "MEMBER",
    "MESSAGES",
    "RESPONSES",
    "Assembler",
    "Choice",
    "Ending",
    "EventMeaning",
    "Format",
    "Json",
    "NoAnswerError",
    "chat",
    "conversation",
    "messages",
    "responses",
]
