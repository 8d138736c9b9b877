"""The way to an upstream whose format the client speaks: the same bytes, both ways.

The one seam for the HTTP client of the hot path. `pool` (`pool.py`) is our own and the default:
it passes the same tests for a third of the CPU of `aiohttp` (`aiohttp_relay.py`), which stays
selectable, `http_client: aiohttp` in an upstream's section, and is imported only then.
"""

from __future__ import annotations

from typing import Literal

from proxy.upstreams.pool.pool import Pool
from proxy.upstreams.upstream import Upstream

HttpClient = Literal["pool", "aiohttp"]


def open_relay(
    base_url: str, api_key: str = "", timeout_s: float = 600, http_client: HttpClient = "pool"
) -> Upstream:
    """An upstream at `base_url` (with its `/v1`); with `api_key` empty the client's key goes there.

    `timeout_s` bounds the silence before and between bytes, not the whole reply.
    """
    if http_client == "pool":
        return Pool(base_url, api_key, timeout_s)
    from proxy.upstreams.aiohttp_relay import AiohttpRelay

    return AiohttpRelay(base_url, api_key, timeout_s)
