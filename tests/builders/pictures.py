"""Encoded images of every kind, whole and broken, for tests."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

from PIL import Image

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def picture(
    kind: str = "PNG",
    size: tuple[int, int] = (4, 3),
    colour: Any = RED,
    mode: str = "RGB",
    **options: Any,
) -> bytes:
    """Return an image file of one colour; `size` is width and height in pixels."""
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, kind, **options)
    return stream.getvalue()


def data_url(image: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(image).decode()}"


def png_that_says(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header claims any number of pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def webp_that_says(width: int, height: int) -> bytes:
    """Return an extended WebP whose header claims a canvas of this size, with no image on it."""
    canvas = b"\x02\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", len(canvas)) + canvas
    return b"RIFF" + struct.pack("<I", len(body)) + body


PNG = picture()
JPEG = picture("JPEG", colour=GREEN)
