"""The formats that are scored, each in a module of its own."""

from __future__ import annotations

from proxy.formats.chat import ChatFormat
from proxy.formats.format import MEMBER, Assembler, Choice, Format, Json, Sight

CHAT = ChatFormat()
FORMATS: tuple[Format, ...] = (CHAT,)

__all__ = ["CHAT", "FORMATS", "MEMBER", "Assembler", "Choice", "Format", "Json", "Sight"]
