"""Decode an image file to the picture that a vision model's processor takes (F04).

A file may be a decompression bomb, or not what it claims to be. Its kind is recognized by its
bytes, its size is checked before decoding, and every failure of Pillow becomes one error,
NotScorableError, whose `reason` is `image_format`, `image_size` or `image_shape`. Pillow is
imported on first use.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Final

from calibrator.errors import MissingExtraError, NotScorableError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS: Final = 50_000_000  # of a decoded image, 150 MB
MOST_STRETCHED: Final = 200  # the largest ratio of the sides


def read_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Image:
    """Return the picture in a file, upright, in RGB on white; of an animation the first frame.

    Raises NotScorableError, and MissingExtraError where Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow", "torch") from error
    try:
        with warnings.catch_warnings():  # about bombs, and damage that Pillow tolerates
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                check_size(*image.size, max_pixels)
                image.load()
                return _on_white(_turn_upright(image))
    except NotScorableError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_many_pixels(max_pixels) from error
    except MemoryError as error:
        raise NotScorableError("image_size", "an image does not fit into memory") from error
    except Exception as error:  # a damaged file may make Pillow raise anything
        raise NotScorableError(
            "image_format", f"an image is damaged, or of no known kind ({type(error).__name__})"
        ) from error


def check_size(width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Raise NotScorableError for an image that is too large, or too long for its width."""
    if width * height > max_pixels:
        raise _too_many_pixels(max_pixels)
    if max(width, height) > MOST_STRETCHED * min(width, height):
        raise NotScorableError(
            "image_shape",
            f"an image of {width} by {height} pixels is too long and narrow, "
            f"over {MOST_STRETCHED} to 1",
        )


def _turn_upright(image: Image) -> Image:
    """Turn an image upright as its EXIF data says; return it unchanged if they cannot be read."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data
        return image


def _on_white(image: Image) -> Image:
    """Convert an image to RGB of 8 bits, on white where it is transparent."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits of gray, as they are stored
        image = image.convert("I").point(lambda value: value / 257).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    whole = image.convert("RGBA")
    white = images.new("RGBA", whole.size, "white")
    return images.alpha_composite(white, whole).convert("RGB")


def _too_many_pixels(max_pixels: int) -> NotScorableError:
    return NotScorableError("image_size", f"an image has more than {max_pixels} pixels")
