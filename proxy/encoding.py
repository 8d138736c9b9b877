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
_ZSTD_PIECE = 1_024  # bytes decoded at once; they give 32 MB at the very most


def can_decode(encoding: str | None) -> bool:
    return (encoding or "identity").strip().lower() in _DECODERS


def decode(body: bytes, encoding: str | None) -> bytes:
    """The identity form of `body`; raises UpstreamBrokenError when it is not what it claims."""
    try:
        decoded = _DECODERS[(encoding or "identity").strip().lower()](body) if body else b""
    except (OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise UpstreamBrokenError(f"upstream's body is no valid {encoding}: {error}") from error
    if len(decoded) > MAX_DECODED_BYTES:
        raise UpstreamBrokenError(f"upstream's body is larger than {MAX_DECODED_BYTES} bytes")
    return decoded


def _inflate(body: bytes) -> bytes:
    """With zlib's header, or without, as some servers send it and every browser takes it."""
    has_header = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
    unpacker = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    decoded = unpacker.decompress(body, MAX_DECODED_BYTES + 1)
    return _whole(decoded, unpacker.eof)


def _gunzip(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
        return stream.read(MAX_DECODED_BYTES + 1)


def _unbrotli(body: bytes) -> bytes:
    unpacker = brotli.Decompressor()
    decoded = unpacker.process(body, output_buffer_limit=MAX_DECODED_BYTES + 1)
    return _whole(bytes(decoded), unpacker.is_finished())


def _unzstd(body: bytes) -> bytes:
    """All frames; its own one-shot reader would take a frame that breaks off for a whole one."""
    decoded, at, is_whole = bytearray(), 0, True
    while at < len(body) and len(decoded) <= MAX_DECODED_BYTES:
        if is_whole:
            frame = zstandard.ZstdDecompressor().decompressobj()
        piece = body[at : at + _ZSTD_PIECE]
        decoded += frame.decompress(piece)
        at += len(piece) - len(frame.unused_data)
        is_whole = frame.eof
    return _whole(bytes(decoded), is_whole)


def _whole(decoded: bytes, is_whole: bool) -> bytes:
    if not is_whole and len(decoded) <= MAX_DECODED_BYTES:
        raise EOFError("it breaks off")
    return decoded


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
