"""A fuzzer of images in requests, which are found, opened and made a picture, or refused.

A finding is any exception but NotScorableError, a picture that is too large, or seconds of work.
"""

from __future__ import annotations

import base64
import io
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from PIL import Image

from calibrator import ImageLimits, NotScorableError, checked_image, locate_images
from calibrator.llm.serving.pixels import MAX_PIXELS, read_image
from tests.fuzz.fuzzing import Case
from tests.fuzz.mutations import changed, spoilt

MOST_S = 5.0
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MODES = ("RGB", "L", "RGBA", "P", "1", "LA")


@contextmanager
def cases() -> Iterator[Case]:
    yield _case


@cache
def _file(kind: str, mode: str, size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    image = Image.new(mode, size)
    if kind in ("JPEG", "WEBP"):
        image = image.convert("RGB")
    image.save(buffer, kind)
    return buffer.getvalue()


def _case(chance: random.Random) -> str:
    size = chance.choice(((1, 1), (7, 5), (300, 200), (1, 900)))
    mode = chance.choice(MODES)
    kind = chance.choice(FORMATS if mode not in ("RGBA", "LA") else ("PNG", "WEBP"))
    data = _file(kind, "RGB" if kind == "BMP" else mode, size)
    if chance.random() < 0.8:
        data = spoilt(chance, data)
    if chance.random() < 0.3:
        data = _grown(chance, data)
    began = time.process_time()
    try:
        outcome = _read(chance, data)
    except NotScorableError as error:
        outcome = error.reason
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{data!r}") from error
    assert time.process_time() - began < MOST_S, f"took too long: {data!r}"
    return outcome


def _grown(chance: random.Random, data: bytes) -> bytes:
    """Return a file whose header may claim that the picture is enormous."""
    at = chance.choice((16, 18, 20, 22, 24, 26, 6, 8))
    return data[:at] + bytes(chance.choice((0, 1, 127, 255)) for _ in range(4)) + data[at + 4 :]


def _read(chance: random.Random, data: bytes) -> str:
    encoded = base64.b64encode(data).decode()
    if chance.random() < 0.2:
        encoded = spoilt(chance, encoded.encode()).decode("latin-1")
    part: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    if chance.random() < 0.4:
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        part = {"type": "image", "source": source}
    if chance.random() < 0.3:
        part = changed(chance, part)
    [found] = locate_images([part], ImageLimits(2**20, 4))
    if isinstance(found, str):
        return "an address"
    picture = read_image(checked_image(found))
    assert picture.mode == "RGB"
    assert picture.width * picture.height <= MAX_PIXELS
    return "a picture"
