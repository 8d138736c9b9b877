"""From image files to pictures for a vision model, and refusals (F04)."""

from __future__ import annotations

import contextlib
import io
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from calibrator import NotScorableError
from calibrator.checkpoints.llm_config import ImageConfig
from calibrator.llm.serving.pixels import MAX_PIXELS, PixelReader, read_image
from tests.builders.pictures import GREEN, PNG, RED, WHITE, picture, png_that_says, webp_that_says

Size = tuple[int, int]
IMAGES = ImageConfig()


def colour_of(data: bytes) -> tuple[int, ...]:
    image = read_image(data)
    assert image.mode == "RGB"
    found = image.getpixel((image.width // 2, image.height // 2))
    assert isinstance(found, tuple)
    return found


def reason_of(data: bytes) -> str:
    with pytest.raises(NotScorableError) as raised:
        read_image(data)
    return raised.value.reason


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_every_kind_is_read(kind: str) -> None:
    """Each kind of image is read in its size and colour."""
    data = picture(kind, (20, 10), GREEN)
    assert read_image(data).size == (20, 10)
    assert np.allclose(colour_of(data), GREEN, atol=4)


@pytest.mark.parametrize(
    ("kind", "mode", "colour", "seen"),
    [
        ("PNG", "RGBA", (255, 0, 0, 255), RED),
        ("PNG", "RGBA", (0, 0, 0, 0), WHITE),
        ("PNG", "RGBA", (0, 0, 0, 128), (127, 127, 127)),
        ("PNG", "LA", (0, 0), WHITE),
        ("WEBP", "RGBA", (0, 0, 0, 0), WHITE),
        ("PNG", "L", 77, (77, 77, 77)),
        ("PNG", "1", 1, WHITE),
        ("PNG", "I;16", 65_535, WHITE),
        ("PNG", "I;16", 257 * 100, (100, 100, 100)),
        ("PNG", "I;16", 0, (0, 0, 0)),
        ("JPEG", "CMYK", (0, 255, 255, 0), RED),
        ("JPEG", "L", 128, (128, 128, 128)),
    ],
)
def test_every_mode_becomes_rgb_on_white(
    kind: str, mode: str, colour: object, seen: tuple[int, ...]
) -> None:
    """Each mode becomes RGB on white, and gray of 16 bits and inks keep their tone."""
    assert np.allclose(colour_of(picture(kind, (8, 8), colour, mode)), seen, atol=2)


def test_a_palette_with_a_clear_colour_is_on_white() -> None:
    """A palette with a transparent colour is read on white."""
    stream = io.BytesIO()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([1, 2, 3])
    palette.save(stream, "PNG", transparency=0)
    assert colour_of(stream.getvalue()) == WHITE


def test_an_animation_is_its_first_frame() -> None:
    """An animation is read as its first frame."""
    stream = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, GREEN)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    assert colour_of(stream.getvalue()) == RED


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


@pytest.mark.parametrize(("orientation", "size"), [(1, (40, 20)), (3, (40, 20)), (6, (20, 40))])
def test_a_photo_is_upright(orientation: int, size: Size) -> None:
    """A photo is turned upright by its EXIF."""
    assert read_image(picture("JPEG", (40, 20), exif=exif(orientation))).size == size


@pytest.mark.parametrize("orientation", [0, 9, 60_000])
def test_nonsense_in_exif_is_passed_over(orientation: int) -> None:
    """Wrong EXIF turns nothing."""
    damaged = picture("JPEG", (40, 20), exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01" * 30)
    assert read_image(damaged).size == (40, 20)
    assert read_image(picture("JPEG", (40, 20), exif=exif(orientation))).size == (40, 20)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"BM",
        b"RIFF\0\0\0\0WEBP",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        picture("TIFF"),
        picture("ICO"),
        picture("PPM"),
        png_that_says(100, 100),
        webp_that_says(100, 100),
    ],
)
def test_what_is_no_image_is_one_error(data: bytes) -> None:
    """A file that is no image is refused with `image_format`."""
    assert reason_of(data) == "image_format"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_file_is_damaged(kind: str, share: float) -> None:
    """A truncated file is refused."""
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, kind)
    whole = stream.getvalue()
    assert reason_of(whole[: int(len(whole) * share)]) == "image_format"


@given(st.integers(0, len(PNG) - 1), st.integers(0, 255), st.integers(0, len(PNG)))
def test_a_damaged_file_is_a_picture_or_an_error_of_ours(at: int, byte: int, cut: int) -> None:
    """A damaged file gives a picture or a NotScorableError."""
    damaged = PNG[:at] + bytes([byte]) + PNG[at + 1 :]
    for data in (damaged, damaged[:cut]):
        with contextlib.suppress(NotScorableError):
            assert read_image(data).mode == "RGB"


@pytest.mark.parametrize("size", [(65_500, 65_500), (10_000, 10_000), (2**31 - 1, 2**31 - 1)])
def test_a_bomb_is_not_decoded(size: Size) -> None:
    """A small file with gigapixels is refused by its head within a second."""
    began = time.process_time()
    assert reason_of(png_that_says(*size)) == "image_size"
    assert time.process_time() - began < 1


def test_a_webp_bomb_is_not_decoded() -> None:
    """A WebP file with a huge canvas is refused."""
    assert reason_of(webp_that_says(16_383, 16_383)) in ("image_size", "image_format")


def test_as_many_pixels_as_allowed_are_read() -> None:
    """An image may have the allowed number of pixels, but no more."""
    assert read_image(picture("PNG", (100, 50)), max_pixels=5_000).size == (100, 50)
    with pytest.raises(NotScorableError, match="more than 4999 pixels"):
        read_image(picture("PNG", (100, 50)), max_pixels=4_999)
    assert MAX_PIXELS < Image.MAX_IMAGE_PIXELS  # Pillow's own limit is higher


@pytest.mark.parametrize("size", [(201, 1), (1, 201), (4_020, 20)])
def test_a_strip_is_no_picture(size: Size) -> None:
    """An image 200 times as long as wide is refused, as by the model's processor (F04)."""
    assert reason_of(picture("PNG", size)) == "image_shape"
    with pytest.raises(ValueError, match="aspect ratio"):
        smart_resize(size[1], size[0], 32, IMAGES.min_pixels, IMAGES.max_pixels)


@pytest.fixture(scope="module")
def reader() -> PixelReader:
    return PixelReader(IMAGES, Qwen2VLImageProcessorPil(patch_size=16, merge_size=2))


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((28, 28), 196),
        ((336, 336), 196),
        ((1_024, 768), 374),
        ((640, 480), 300),
        ((1, 1), 196),
        ((33, 900), 222),
        ((1_200, 800), 384),
        ((6_400, 32), 200),
    ],
)
def test_pictures_are_fitted_into_the_papers_bounds(
    reader: PixelReader, size: Size, tokens: int
) -> None:
    """Pictures are scaled to 196 to 392 tokens of 32 by 32 pixels (F04, V15, V16, W02).

    Both placeholders become 448 by 448.
    """
    found = reader.read(picture("PNG", size))
    assert found.tokens == tokens == found.grid[1] * found.grid[2] // 4
    assert IMAGES.min_pixels <= tokens * 32**2 <= IMAGES.max_pixels
    assert found.patches.shape[0] == found.grid[1] * found.grid[2]
    assert np.isfinite(found.patches).all()
