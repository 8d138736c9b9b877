"""Turn image files into the vision tower's input: patches and their grid (F04-F06, W02)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.checkpoints.llm_config import ImageConfig
from calibrator.errors import CheckpointError
from calibrator.llm.serving.images import read_image


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
        """Read an image file; raises NotScorableError if it is none, or too large."""
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
        """Write the processor with the sizes of this configuration."""
        self._processor.size = {
            "shortest_edge": self.config.min_pixels,
            "longest_edge": self.config.max_pixels,
        }
        self._processor.save_pretrained(folder)

    def _patches(self, image: Any, least: int, most: int) -> Pixels:
        size = {"shortest_edge": least, "longest_edge": most}  # pixel counts, despite the names
        read: Mapping[str, Any] = self._processor(images=[image], size=size, return_tensors="np")
        [grid] = read["image_grid_thw"].tolist()
        tokens = grid[0] * grid[1] * grid[2] // self._processor.merge_size**2
        return Pixels(np.asarray(read["pixel_values"], np.float32), tuple(grid), tokens)


def load_pixel_reader(config: ImageConfig, folder: Path) -> PixelReader:
    """Load the image processor of the base in `folder`; raises CheckpointError."""
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
