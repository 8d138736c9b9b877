"""The relay over aiohttp, for whom our own client does not suit (see `relay.py`).

One session per upstream for the life of the proxy; no redirects, no cookies, no retries, no
decoding, no header of its own.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError
from proxy.upstreams.pool.connection import has_chunks
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.headers import with_header

CONNECT_TIMEOUT_S = 15
KEEP_ALIVE_S = 15  # shorter than common servers', so that a pooled connection is rarely stale
HEADER_LIMIT = 64 * 1024
WRITTEN_AT_ONCE = 2**20  # bytes; aiohttp wants to be handed more than that as a file


class AiohttpRelay:
    """An upstream at `base_url` (with its `/v1`); with `api_key` empty the client's key goes there.

    `timeout_s` bounds the silence before and between bytes, not the whole reply.
    """

    def __init__(self, base_url: str, api_key: str = "", timeout_s: float = 600) -> None:
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s
        )
        self._session: aiohttp.ClientSession | None = None

    def _open_session(self) -> aiohttp.ClientSession:
        """Made on first use, because it belongs to the running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
                max_line_size=HEADER_LIMIT,
                max_field_size=HEADER_LIMIT,
            )
        return self._session

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Raises UpstreamError when no answer begins; an error status is an answer."""
        query = f"?{request.query}" if request.query else ""
        url = URL(self._base_url + request.path + query, encoded=True)
        fields = request.headers
        if self._api_key:
            fields = with_header(fields, b"authorization", f"Bearer {self._api_key}".encode())
        headers = [(name.decode("latin-1"), _as_text(value)) for name, value in fields]
        body = request.body
        try:
            response = await self._open_session().request(
                request.method,
                url,
                headers=CIMultiDict(headers),
                data=(io.BytesIO(body) if len(body) > WRITTEN_AT_ONCE else body) or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translated(error, url) from error
        fields = [(name.lower(), value) for name, value in response.raw_headers]
        try:
            has_chunks(fields)
        except ValueError as error:
            response.close()
            where = f"{url.scheme}://{url.raw_authority}"
            raise UpstreamBrokenError(
                f"upstream {where} did not answer in HTTP ({error})"
            ) from error

        async def close() -> None:
            response.close()  # also cancels what upstream is still generating

        return UpstreamReply(response.status, fields, _chunks(response, url), close)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # lets the transports see that they are closed


class _Connector(aiohttp.TCPConnector):
    """Never reuses a connection on which something came that nobody asked for."""

    async def _get(self, key: Any, traces: Any) -> Any:
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()
        return None


def _as_text(value: bytes) -> str:
    """aiohttp sends field values as UTF-8: this way the bytes of a UTF-8 value stay the same."""
    try:
        return value.decode()
    except UnicodeError:
        return value.decode("latin-1")


async def _chunks(response: aiohttp.ClientResponse, url: URL) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if rest := response.content._read_nowait(-1):  # came before the break, but was kept back
            yield rest
        raise _translated(error, url, has_begun=True) from error


def _translated(error: Exception, url: URL, has_begun: bool = False) -> UpstreamError:
    """The seam for aiohttp's errors; a test goes through every kind of them."""
    where = f"{url.scheme}://{url.raw_authority}"
    if isinstance(error, TimeoutError):
        return UpstreamTimeoutError(f"upstream {where} did not answer in time")
    if has_begun or isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return UpstreamBrokenError(
            f"upstream {where} broke off its answer ({type(error).__name__})"
        )
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamBrokenError(f"upstream {where} did not answer in HTTP ({error.message})")
    return UpstreamError(f"could not connect to upstream {where} ({type(error).__name__})")
