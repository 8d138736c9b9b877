"""Downloads of images that a client's request names by URL, which may be anywhere.

Only hosts that the configuration names are contacted, and only public addresses, each checked
before the connection; redirects are checked in the same way. No data of the client is sent, and no
more of the answer is read than an image may have.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx

from calibrator import NotScorableError
from proxy.config.settings.images import FetchConfig
from proxy.http.public_addresses import AddressRefusedError, checked_address

MOST_AT_ONCE: Final = 16
MOST_REDIRECTS: Final = 3
STEP_S: Final = 10.0  # seconds of silence; the deadline of a score is usually shorter
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HEADERS: Final = {
    "user-agent": "pinocchio-proxy",
    "accept": "image/png, image/jpeg, image/webp, image/gif, image/bmp",
    "accept-encoding": "identity",
}


class ImageFetcher:
    """A downloader of images, at most `MOST_AT_ONCE` at a time and of at most `max_bytes` each."""

    def __init__(self, config: FetchConfig, max_bytes: int) -> None:
        self._config = config
        self._max_bytes = max_bytes
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._trust = httpx.create_ssl_context(trust_env=False)
        # Separate threads, so that a slow name server does not block writes to the store.
        self._lookups = ThreadPoolExecutor(4, thread_name_prefix="image-host")

    async def fetch(self, url: str) -> bytes:
        """Download an image and follow redirects; returns its bytes.

        It has a little more than `max_bytes` if it is too large. Raises NotScorableError.
        """
        try:
            target = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise NotScorableError("image_url", "an image's URL is none") from error
        async with self._turn:
            try:
                return await self._follow_redirects(target)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise _unreachable(target, type(error).__name__) from error

    def close(self) -> None:
        """Stop the threads; nothing may be fetched afterwards."""
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _follow_redirects(self, url: httpx.URL) -> bytes:
        """Download an image and follow redirects.

        Raises NotScorableError, httpx's errors and ValueError.
        """
        async with httpx.AsyncClient(
            verify=self._trust, trust_env=False, timeout=STEP_S, headers=HEADERS
        ) as client:
            for _ in range(MOST_REDIRECTS + 1):
                response = await client.send(await self._request(client, url), stream=True)
                try:
                    if not response.has_redirect_location:
                        return await self._body(url, response)
                    url = url.join(response.headers["location"])
                finally:
                    await response.aclose()
        raise _unreachable(url, f"more than {MOST_REDIRECTS} redirects")

    async def _request(self, client: httpx.AsyncClient, url: httpx.URL) -> httpx.Request:
        """Build a request to the one address of the host that was checked.

        Raises NotScorableError for a URL that is not plain http(s), a host that is not configured,
        and an address that is not public.
        """
        host = url.raw_host.decode("ascii")
        is_port = url.port is None or 0 < url.port < 2**16
        if url.scheme not in DEFAULT_PORTS or not host or url.userinfo or not is_port:
            raise NotScorableError("image_url", "an image's URL is no plain http(s) URL")
        if not self._config.allows(host, url.port):
            text = f"images may not be fetched from {url.netloc.decode()} (calibrator.images.fetch)"
            raise NotScorableError("image_url", text)
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
        try:
            address = await checked_address(
                host, port, allow_private=self._config.allow_private, threads=self._lookups
            )
        except AddressRefusedError as error:
            raise NotScorableError("image_url", str(error)) from error
        headers = {"host": url.netloc.decode("ascii")}
        pinned = url.copy_with(host=address, fragment=None)
        return client.build_request(
            "GET", pinned, headers=headers, extensions={"sni_hostname": host}
        )

    async def _body(self, url: httpx.URL, response: httpx.Response) -> bytes:
        """Read the body of a response, at most a little more than `max_bytes`.

        Raises NotScorableError for a status other than 200, and for a longer `content-length`.
        """
        if response.status_code != httpx.codes.OK:
            raise _unreachable(url, f"status {response.status_code}")
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_bytes:
            raise NotScorableError("image_size", f"an image has {length} bytes, too many")
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > self._max_bytes:
                break  # the caller refuses it and closes the connection
        return bytes(body)


def _unreachable(url: httpx.URL, reason: str) -> NotScorableError:
    """Return an error that names only the URL's host, because the rest may be secret."""
    return NotScorableError(
        "image_fetch", f"an image could not be downloaded from {url.host}: {reason}"
    )
