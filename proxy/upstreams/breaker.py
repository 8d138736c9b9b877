"""A circuit breaker: it spares a failing upstream the requests, and clients the wait.

After a number of failures in a row the breaker opens: requests are refused at once. When its time
is up, it admits one request. If upstream answers it, all are admitted again; otherwise the breaker
stays open for the same time. A failure is no HTTP answer at all, or a status of 500 or more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import structlog

from proxy.config.settings.upstreams import BreakerConfig
from proxy.errors import UpstreamClosedError, UpstreamError
from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest

log = structlog.get_logger()

State = Literal["closed", "open", "half_open"]


class Breaker:
    """The breaker of one upstream, for use from one thread; times are in seconds of `clock`."""

    def __init__(
        self, name: str, config: BreakerConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._config, self._clock = name, config, clock
        self._failures = 0  # failures in a row
        self._opens_until: float | None = None
        self._is_probing = False

    @property
    def state(self) -> State:
        """The state: "closed" (all requests are admitted), "open" (none) or "half_open" (one)."""
        if self._opens_until is None:
            return "closed"
        return "open" if self._clock() < self._opens_until else "half_open"

    def admit(self) -> bool:
        """Admit a request; return whether it is the probe that decides if the breaker closes.

        False for every request while it is closed. Raises UpstreamClosedError while it is open, and
        beside the probe.
        """
        if self._opens_until is None:
            return False
        wait_s = self._opens_until - self._clock()
        if wait_s > 0 or self._is_probing:
            raise UpstreamClosedError(
                f"upstream {self._name!r} failed {self._failures} times in a row and is not asked "
                "for a while",
                wait_s,
            )
        self._is_probing = True
        return True

    def note(self, has_failed: bool | None, is_probe: bool) -> None:
        """Count how an admitted request ended: failed or not; None means that it was given up.

        `is_probe` is what `admit` returned. Opens the breaker after enough failures in a row or a
        failed probe, closes it after a success, and logs either.
        """
        self._is_probing = self._is_probing and not is_probe
        if has_failed is None or (self._opens_until is not None and not is_probe):
            return  # it proves nothing, or was sent before the breaker opened
        if not has_failed:
            if self._opens_until is not None:
                log.warning("upstream_breaker_closed", upstream=self._name)
            self._failures, self._opens_until = 0, None
            return
        self._failures += 1
        if self._failures >= self._config.failures:
            self._opens_until = self._clock() + self._config.open_s
            log.warning(
                "upstream_breaker_opened",
                upstream=self._name,
                failures=self._failures,
                open_s=self._config.open_s,
            )


class BreakingUpstream:
    """An upstream behind a breaker."""

    def __init__(self, upstream: Upstream, breaker: Breaker) -> None:
        self._upstream = upstream
        self.breaker = breaker

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request, unless the breaker is open, and count how it ended.

        An error status of 500 or more and no answer in time are failures; a client that has left is
        none. Raises what the upstream raises, and UpstreamClosedError.
        """
        is_probe, has_failed = self.breaker.admit(), None
        try:
            reply = await self._upstream.send(request)
            has_failed = reply.status >= 500
            return reply
        except UpstreamError:
            has_failed = True
            raise
        except asyncio.CancelledError:
            has_failed = True if request.is_late else None  # otherwise its client has left
            raise
        finally:
            self.breaker.note(has_failed, is_probe)

    async def aclose(self) -> None:
        await self._upstream.aclose()
