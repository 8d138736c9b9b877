"""A bursts setting that always gathers, as with many busy connections."""

from __future__ import annotations

from proxy.http.wire.outlet import Bursts


class AlwaysGathered(Bursts):
    """Makes every write wait for the next turn of the event loop."""

    __slots__ = ()

    @property
    def is_gathering(self) -> bool:  # type: ignore[override]
        return True

    @is_gathering.setter
    def is_gathering(self, _: bool) -> None:
        """Ignore the value: requests are always gathered."""
