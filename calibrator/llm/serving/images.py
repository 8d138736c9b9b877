"""From the encoded file of an image to the picture that a vision model's processor takes (F04).

A file may be a bomb or a lie: its kind is told by its bytes, its size is looked at before anything
is decoded, and whatever Pillow stumbles over is one error, NotScorableError, whose `reason` is
`image_format`, `image_size` or `image_shape`. Pillow is imported on first use.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Final

from calibrator.errors import MissingExtraError, NotScorableError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS: Final = 50_000_000  # of an image that is decoded: 150 MB
MOST_STRETCHED: Final = 200  # times as long as wide


def read_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Image:
    """The picture in a file, upright, in RGB on white; of an animation its first frame.

    Raises NotScorableError, and MissingExtraError where Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow", "torch") from error
    try:
        with warnings.catch_warnings():  # of bombs and of damage that Pillow reads past
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                check_size(*image.size, max_pixels)
                image.load()
                return _on_white(_upright(image))
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
    """Raises NotScorableError for an image that is too large, or too long for its width."""
    if width * height > max_pixels:
        raise _too_many_pixels(max_pixels)
    if max(width, height) > MOST_STRETCHED * min(width, height):
        raise NotScorableError(
            "image_shape",
            f"an image of {width} by {height} pixels is too long and narrow, "
            f"over {MOST_STRETCHED} to 1",
        )


def _upright(image: Image) -> Image:
    """As its EXIF says that it was held; as it is where nobody can read that."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damage beside the picture
        return image


def _on_white(image: Image) -> Image:
    """In RGB of 8 bits."""
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
