"""Turn image files into the vision tower's input: patches and their grid (F04-F06, W02).

A file may be a decompression bomb, or not what it claims to be. Its kind is recognized by its
bytes, its size is checked before decoding, and every failure of Pillow becomes one error,
NotScorableError, whose `reason` is `image_format`, `image_size` or `image_shape`. Pillow is
imported on first use.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrator.checkpoints.llm_config import ImageConfig
from calibrator.errors import CheckpointError, MissingExtraError, NotScorableError

if TYPE_CHECKING:
    from PIL.Image import Image


FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS: Final = 50_000_000  # of a decoded image, 150 MB
MOST_STRETCHED: Final = 200  # the largest ratio of the sides


def read_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Image:
    """Return the picture in an image file, upright, in RGB on white.

    Of an animation it is the first frame. Raises NotScorableError for a file that is no image,
    damaged, or too large, and MissingExtraError where Pillow is not installed.
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
    """Raise NotScorableError for an image with too many pixels, or far too long for its width.

    The reason is `image_size` or `image_shape`.
    """
    if width * height > max_pixels:
        raise _too_many_pixels(max_pixels)
    if max(width, height) > MOST_STRETCHED * min(width, height):
        raise NotScorableError(
            "image_shape",
            f"an image of {width} by {height} pixels is too long and narrow, "
            f"over {MOST_STRETCHED} to 1",
        )


def _turn_upright(image: Image) -> Image:
    """Return an image turned upright as its EXIF data says, or unchanged if these are damaged."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data
        return image


def _on_white(image: Image) -> Image:
    """Return an image as RGB of 8 bits, on white where it is transparent."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits of gray, as they are stored
        image = image.convert("I").point(lambda value: value / 257).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    whole = image.convert("RGBA")
    white = images.new("RGBA", whole.size, "white")
    return images.alpha_composite(white, whole).convert("RGB")


def _too_many_pixels(max_pixels: int) -> NotScorableError:
    """Return the error for an image of more than `max_pixels`, with the reason `image_size`."""
    return NotScorableError("image_size", f"an image has more than {max_pixels} pixels")


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """One image: `patches`, their `grid`, and the number of its `tokens` in a prompt.

    `patches` are (P, channels * frames * patch area), `grid` is (1, height, width) in patches.
    """

    patches: NDArray[np.float32]
    grid: tuple[int, int, int]
    tokens: int


class PixelReader:
    """A reader of images in the form that the base was trained on."""

    def __init__(self, config: ImageConfig, processor: Any) -> None:
        self.config = config
        self._processor = processor

    def read(self, data: bytes) -> Pixels:
        """Return the patches of an image file.

        Raises NotScorableError if it is none, or too large, and MissingExtraError without Pillow.
        """
        return self._patches(read_image(data), self.config.min_pixels, self.config.max_pixels)

    @cached_property
    def placeholder(self) -> Pixels | None:
        """The image for questions without one, always the same object; None if there is none."""
        if (found := self.config.placeholder) is None:
            return None
        from PIL import Image

        image = Image.new("RGB", (found.width, found.height), found.color)
        return self._patches(image, found.pixels, found.pixels)

    def save(self, folder: Path) -> None:
        """Write the image processor's configuration, with these sizes, into a folder."""
        self._processor.size = {
            "shortest_edge": self.config.min_pixels,
            "longest_edge": self.config.max_pixels,
        }
        self._processor.save_pretrained(folder)

    def _patches(self, image: Any, least: int, most: int) -> Pixels:
        """Return a picture's patches, resized to `least` to `most` pixels."""
        size = {"shortest_edge": least, "longest_edge": most}  # pixel counts, despite the names
        read: Mapping[str, Any] = self._processor(images=[image], size=size, return_tensors="np")
        [grid] = read["image_grid_thw"].tolist()
        tokens = grid[0] * grid[1] * grid[2] // self._processor.merge_size**2
        return Pixels(np.asarray(read["pixel_values"], np.float32), tuple(grid), tokens)


def load_pixel_reader(config: ImageConfig, folder: Path) -> PixelReader:
    """Load the image processor of the base in `folder`.

    Raises CheckpointError if it cannot be read or is not of the Qwen kind.
    """
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
            folder, backend="pil", trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # transformers may raise anything
        raise CheckpointError(f"the image processor of {folder} cannot be read: {error}") from error
    if not hasattr(processor, "merge_size"):
        raise CheckpointError(f"the image processor of {folder} is not of the Qwen kind")
    return PixelReader(config, processor)
