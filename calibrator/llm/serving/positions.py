"""Compute the positions of a prompt's tokens, for models that count time, height and width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrator.llm.serving.batches import ModelRow


def positions_of(row: ModelRow, image_id: int, merge: int) -> NDArray[np.int64]:
    """Return positions (3, L) in time, height and width.

    Text counts on in all three. An image's tokens have one time, and lie as its patches do; one
    token covers `merge` by `merge` patches. The text after an image continues after its longer
    side.
    """
    found = np.empty((3, len(row.ids)), np.int64)
    at = position = 0
    for (start, end), image in zip(row.spans(image_id), row.images, strict=True):
        found[:, at:start] = np.arange(position, position + start - at)
        position += start - at
        frames, height, width = image.grid[0], image.grid[1] // merge, image.grid[2] // merge
        places = np.indices((frames, height, width)).reshape(3, -1)
        found[:, start:end] = places + position
        position += max(height, width)
        at = end
    found[:, at:] = np.arange(position, position + len(row.ids) - at)
    return found
