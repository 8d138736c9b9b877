"""Content encodings: a body is decoded only if it has to be read.

Four things are bounded: the decoded size, its ratio to the encoded size, the number of frames in a
body, and the window that a frame may require. Bodies that are not small are decoded on a thread, so
that the event loop is not blocked.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Final

import brotli
import zstandard

from proxy.errors import UpstreamBrokenError
from proxy.http.wire.worker_threads import apart

MAX_DECODED_BYTES: Final = 64 * 2**20
MAX_RATIO: Final = 100  # decoded to encoded bytes; JSON and prose have 3 to 20
ALWAYS_ALLOWED: Final = 2**18  # decoded bytes that are allowed at any ratio
AT_ONCE: Final = 2**18  # bytes, decoded and encoded, up to which no thread is used
ALWAYS_AT_ONCE: Final = 2**14  # decoded bytes; or RATIO_AT_ONCE times the encoded ones if more
RATIO_AT_ONCE: Final = 16
MOST_FRAMES: Final = 4_096
_PIECE = 2**14  # encoded bytes per step
_MAX_WINDOW = 2**23  # bytes of history that a zstd frame may require (RFC 9659)
_ZEROS = re.compile(rb"\x00*")  # padding that may follow the members of a gzip file


class DecodedTooLargeError(UpstreamBrokenError):
    """A body decodes to more bytes than allowed."""


def can_decode(encoding: str | None) -> bool:
    """Return whether `decode_body` knows a `content-encoding`; None and "" count as `identity`.

    Case and outer blanks are ignored. A list such as `gzip, br` is not known.
    """
    return (encoding or "identity").strip().lower() in _DECODERS


async def decode_body(body: bytes, encoding: str | None, limit: int = MAX_DECODED_BYTES) -> bytes:
    """Decode an untrusted body to at most `limit` bytes and MAX_RATIO times its own size.

    Larger bodies are decoded on a thread. Raises UpstreamBrokenError where the body is not valid in
    its encoding, and DecodedTooLargeError where it decodes to more.
    """
    name = (encoding or "identity").strip().lower()
    if name == "identity" or not body:
        return body
    most = most_of(body, limit)
    if len(body) <= AT_ONCE and name != "br":  # brotli allocates a window of megabytes first
        at_once = min(most, AT_ONCE, max(ALWAYS_AT_ONCE, RATIO_AT_ONCE * len(body)))
        try:
            return decode(body, name, at_once)
        except DecodedTooLargeError:
            if most <= at_once:
                raise
    return await apart(decode, body, name, most)


def most_of(body: bytes, limit: int = MAX_DECODED_BYTES) -> int:
    """Return how many bytes an encoded body may decode to.

    That is 100 times its size, but at least 256 KiB and at most `limit`.
    """
    return min(limit, max(ALWAYS_ALLOWED, MAX_RATIO * len(body)))


def decode(body: bytes, encoding: str | None, most: int = MAX_DECODED_BYTES) -> bytes:
    """Decode a body to at most `most` bytes, on the calling thread.

    `encoding` must be one that `can_decode` knows; None and "" mean that the body is not encoded.
    Raises UpstreamBrokenError where the body is not valid in its encoding, and DecodedTooLargeError
    beyond `most`.
    """
    unpack = _DECODERS[(encoding or "identity").strip().lower()]
    try:
        decoded = unpack(body, most) if body else b""
    except (OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise UpstreamBrokenError(f"upstream's body is no valid {encoding}: {error}") from error
    if len(decoded) > most:
        raise DecodedTooLargeError(f"upstream's body is larger than {most} bytes")
    return decoded


def _identity(body: bytes, most: int) -> bytes:
    """Return the body unchanged."""
    return body


def _inflate(body: bytes, most: int) -> bytes:
    """Decode deflate with zlib's header or without it, because some servers omit it."""
    has_header = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
    unpacker = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    decoded = unpacker.decompress(body, most + 1)
    return _whole(decoded, unpacker.eof, most)


def _gunzip(body: bytes, most: int) -> bytes:
    """Decode all members of a gzip body to at most about `most` + 1 bytes.

    Raises EOFError if it is cut off or has more than 4,096 members.
    """
    decoded, at, members = bytearray(), 0, 0
    while at < len(body) and len(decoded) <= most:
        members += 1
        _check_frames(members)
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while at < len(body) and not unpacker.eof and len(decoded) <= most:
            piece = body[at : at + _PIECE]
            decoded += unpacker.decompress(piece, most + 1 - len(decoded))
            at += len(piece) - len(unpacker.unused_data)
        if not unpacker.eof:
            return _whole(bytes(decoded), False, most)
        padding = _ZEROS.match(body, at)
        at = padding.end() if padding else at
    return bytes(decoded)


def _unbrotli(body: bytes, most: int) -> bytes:
    """Decode a brotli body to at most `most` + 1 bytes; raises EOFError if it is cut off."""
    unpacker = brotli.Decompressor()
    decoded = unpacker.process(body, output_buffer_limit=most + 1)
    return _whole(bytes(decoded), unpacker.is_finished(), most)


def _unzstd(body: bytes, most: int) -> bytes:
    """Decode all frames of a zstd body.

    The library's one-shot reader would accept a truncated frame as complete.
    """
    decoded, at, is_whole, frames = bytearray(), 0, True, 0
    size = min(1_024, max(64, most // 2**15))  # four bytes can expand to 128 KB
    while at < len(body) and len(decoded) <= most:
        if is_whole:
            frames += 1
            _check_frames(frames)
            frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
        piece = body[at : at + size]
        decoded += frame.decompress(piece)
        at += len(piece) - len(frame.unused_data)
        is_whole = frame.eof
    return _whole(bytes(decoded), is_whole, most)


def _check_frames(count: int) -> None:
    """Raise EOFError for a body of more than 4,096 frames or members."""
    if count > MOST_FRAMES:
        raise EOFError(f"it has more than {MOST_FRAMES} frames")


def _whole(decoded: bytes, is_whole: bool, most: int) -> bytes:
    """Return the decoded bytes; raise EOFError if the body was cut off before `most` bytes."""
    if not is_whole and len(decoded) <= most:
        raise EOFError("it breaks off")
    return decoded


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "identity": _identity,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
