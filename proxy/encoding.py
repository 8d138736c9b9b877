"""Content encodings: a body is decoded only when a member of ours is to go into it."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable

import brotli
import zstandard

from proxy.errors import UpstreamBrokenError

MAX_DECODED_BYTES = 64 * 2**20


def can_decode(encoding: str | None) -> bool:
    return (encoding or "identity").strip().lower() in _DECODERS


def decode(body: bytes, encoding: str | None) -> bytes:
    """The identity form of `body`; raises UpstreamBrokenError when it is not what it claims."""
    try:
        decoded = _DECODERS[(encoding or "identity").strip().lower()](body)
    except (OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise UpstreamBrokenError(f"upstream's body is no valid {encoding}: {error}") from error
    if len(decoded) > MAX_DECODED_BYTES:
        raise UpstreamBrokenError(f"upstream's body is larger than {MAX_DECODED_BYTES} bytes")
    return decoded


def _inflate(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    return unpacker.decompress(body, MAX_DECODED_BYTES + 1)


def _gunzip(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
        return stream.read(MAX_DECODED_BYTES + 1)


def _unbrotli(body: bytes) -> bytes:
    return bytes(brotli.decompress(body))


def _unzstd(body: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body) as stream:
        return bytes(stream.read(MAX_DECODED_BYTES + 1))


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
