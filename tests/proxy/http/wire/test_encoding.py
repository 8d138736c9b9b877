"""Content encodings: a body is decoded whole or not at all, and within bounds."""

from __future__ import annotations

import contextlib
import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamBrokenError
from proxy.http.wire.encoding import (
    ALWAYS_ALLOWED,
    MAX_DECODED_BYTES,
    MAX_RATIO,
    MOST_FRAMES,
    DecodedTooLargeError,
    can_decode,
    decode,
    decode_body,
)


def _zstd(body: bytes) -> bytes:
    """Return a frame as a server streams it: without the size of its content."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(body) + packer.flush()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1),
    "deflate": lambda body: zlib.compress(body, 1),
    "br": lambda body: brotli.compress(body, quality=5),
    "zstd": _zstd,
}
BODY = b'{"choices":[]}' * 1_000
NOISE = os.urandom(300_000)  # does not shrink, so that it spans many blocks


@given(st.sampled_from(sorted(PACK)), st.binary(max_size=2_000))
def test_what_was_packed_comes_out(encoding: str, body: bytes) -> None:
    """Every offered encoding decodes to the identity form."""
    assert decode(PACK[encoding](body), encoding) == body


@pytest.mark.parametrize("encoding", PACK)
def test_large_bodies_come_out_whole(encoding: str) -> None:
    """Bodies of many blocks are decoded to their end."""
    assert decode(PACK[encoding](NOISE), encoding) == NOISE


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_are_one_body(encoding: str) -> None:
    """Both formats allow several packed pieces in one body."""
    assert decode(PACK[encoding](BODY) + PACK[encoding](b"more"), encoding) == BODY + b"more"


def test_zstd_with_a_content_size() -> None:
    """A frame with its content size is decoded like one without."""
    assert decode(zstandard.compress(BODY), "zstd") == BODY


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_identity_is_the_body_itself(encoding: str | None) -> None:
    """Without an encoding the body is unchanged."""
    assert can_decode(encoding)
    assert decode(BODY, encoding) is BODY


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZip", " gzip "])
def test_names_are_read_as_http_does(name: str) -> None:
    """Case and white space of the header's value do not matter."""
    assert can_decode(name)
    assert decode(gzip.compress(BODY), name) == BODY


@pytest.mark.parametrize("name", ["compress", "gzip, br", "aws-chunked", "dcb"])
def test_undecodable_replies_are_relayed(name: str) -> None:
    """Unknown and layered encodings are recognized beforehand; such replies are relayed."""
    assert not can_decode(name)


@pytest.mark.parametrize("encoding", PACK)
def test_nothing_packed_is_nothing(encoding: str) -> None:
    """An empty body is empty under any encoding, as servers send with 204 and HEAD."""
    assert decode(b"", encoding) == b""


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("body", [BODY, NOISE], ids=["small", "large"])
@pytest.mark.parametrize("lost", [1, 5, 0.5])
def test_a_body_that_breaks_off_is_refused(encoding: str, body: bytes, lost: float) -> None:
    """Half a body is refused, and never taken for a whole one."""
    packed = PACK[encoding](body)
    cut = packed[: -int(lost if lost >= 1 else len(packed) * lost)]
    with pytest.raises(UpstreamBrokenError, match=f"no valid {encoding}"):
        decode(cut, encoding)


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("body", [b"plain text, no packing at all", BODY, b"\x00", b"\xff" * 99])
def test_a_body_that_is_not_what_it_claims_is_refused(encoding: str, body: bytes) -> None:
    """A body in another encoding than it claims is upstream's error, with a sentence."""
    with pytest.raises(UpstreamBrokenError, match=f"no valid {encoding}"):
        decode(body, encoding)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_flipped_byte_is_refused_or_changes_nothing_unseen(encoding: str) -> None:
    """A flipped byte in the middle raises no other exception than ours."""
    packed = bytearray(PACK[encoding](BODY))
    for at in range(0, len(packed), 7):
        damaged = bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
        with contextlib.suppress(UpstreamBrokenError):
            decode(damaged, encoding)


@cache
def bomb(encoding: str) -> bytes:
    return PACK[encoding](bytes(4 * MAX_DECODED_BYTES))


@pytest.mark.parametrize("encoding", PACK)
def test_a_bomb_is_refused_in_bounded_memory(encoding: str) -> None:
    """A few kilobytes that would unpack to 256 MB are given up at the limit.

    tracemalloc sees Python's own buffers, which hold the unpacked bytes.
    """
    packed = bomb(encoding)
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamBrokenError, match=f"larger than {MAX_DECODED_BYTES} bytes"):
            decode(packed, encoding)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3.5 * MAX_DECODED_BYTES


@pytest.mark.parametrize("encoding", PACK)
async def test_what_comes_out_is_bounded_by_what_came_in(encoding: str) -> None:
    """A body may unpack to a hundred times its size, and small ones to a little in any case."""
    small = PACK[encoding](bytes(ALWAYS_ALLOWED))
    assert len(await decode_body(small, encoding)) == ALWAYS_ALLOWED
    prose = PACK[encoding](BODY + NOISE)
    assert await decode_body(prose, encoding) == BODY + NOISE
    large = PACK[encoding](bytes(40 * ALWAYS_ALLOWED))
    assert MAX_RATIO * len(large) < 40 * ALWAYS_ALLOWED
    with pytest.raises(DecodedTooLargeError):
        await decode_body(large, encoding)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_frames_are_counted(encoding: str) -> None:
    """Frames are counted, since empty ones have no bytes to bound and take time."""
    frame = PACK[encoding](b"")
    assert decode(frame * MOST_FRAMES, encoding) == b""
    with pytest.raises(UpstreamBrokenError, match=f"more than {MOST_FRAMES} frames"):
        decode(frame * (MOST_FRAMES + 1), encoding)
