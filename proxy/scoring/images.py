"""The images of a question, from the request or fetched, for a calibrator that reads them.

A missing image costs the confidence, never the completion, and has a reason
(`calibrator/text/images.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import structlog

from calibrator import ImageLimits, NotScorableError, QueueFullError, checked_image, locate_images
from proxy.config.settings.images import ImagesConfig

if TYPE_CHECKING:
    from proxy.scoring.image_fetching import ImageFetcher

log = structlog.get_logger(__name__)

ImagePart = Mapping[str, Any]  # a part of a message's content
MOST_HELD: Final = 512 * 2**20  # bytes of images that wait for scores, over all questions


class Images:
    """Reads images and counts how many bytes of them are held."""

    def __init__(self, config: ImagesConfig | None = None, *, most_held: int = MOST_HELD) -> None:
        config = config or ImagesConfig()
        self.may_be_ignored = config.ignore
        self._fetch = config.fetch
        self._limits = ImageLimits(config.max_bytes, config.max_count)
        self._most_held = most_held
        self._held = 0
        self._fetcher: ImageFetcher | None = None  # created for the first fetch

    def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()

    @asynccontextmanager
    async def of(self, parts: Sequence[ImagePart]) -> AsyncIterator[tuple[bytes, ...]]:
        """Yield the encoded images of content parts, in order; they are held inside the context.

        URLs are fetched. Raises NotScorableError where one cannot be read or fetched, and
        QueueFullError where too many bytes are held already.
        """
        images = await asyncio.to_thread(locate_images, parts, self._limits)  # a few ms per MB
        most = self._limits.max_bytes
        size = sum(most if isinstance(each, str) else len(each) for each in images)
        if self._held + size > self._most_held:
            raise QueueFullError(f"{self._held} bytes of images wait for their scores")
        self._held += size
        try:
            yield await self._fetch_all(images)
        finally:
            self._held -= size

    async def _fetch_all(self, images: Sequence[bytes | str]) -> tuple[bytes, ...]:
        """Return the images with each URL replaced by the fetched image, in order.

        All are fetched concurrently, the same URL once. Raises NotScorableError.
        """
        fetching = {
            url: asyncio.ensure_future(self._fetch_image(url))
            for url in dict.fromkeys(images)
            if isinstance(url, str)
        }
        try:
            return tuple(
                [await fetching[each] if isinstance(each, str) else each for each in images]
            )
        finally:
            for task in fetching.values():
                task.cancel()
            await asyncio.gather(*fetching.values(), return_exceptions=True)

    async def _fetch_image(self, url: str) -> bytes:
        """Fetch an image, check it and return its bytes.

        Raises NotScorableError, which is logged without more of the URL than the host.
        """
        if self._fetch is None:
            raise NotScorableError("image_url", "images are not fetched (calibrator.images.fetch)")
        if self._fetcher is None:
            from proxy.scoring.image_fetching import ImageFetcher

            self._fetcher = ImageFetcher(self._fetch, self._limits.max_bytes)
        try:
            return checked_image(await self._fetcher.fetch(url), self._limits.max_bytes)
        except NotScorableError as error:
            log.warning("image_not_fetched", reason=error.reason, error=str(error))
            raise
