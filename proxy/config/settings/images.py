"""`calibrator.images` of `proxy.yaml`: how the images of questions are handled."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from proxy.config.settings.section import Section, Size

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9*._-]+)(:(\d{1,5}|\*))?")


def _fetch(value: Any) -> Any:
    """Read `false` as None (no fetching), and `true` as a mapping that allows any public host.

    Any other value is unchanged.
    """
    if isinstance(value, bool):
        return {"hosts": ("*",)} if value else None
    return value


class FetchConfig(Section):
    """The hosts from which the images of questions may be fetched.

    `*` in a host matches anything but a port. A host without a port means its scheme's default
    port.
    """

    hosts: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    allow_private: bool = False  # whether addresses of the local network are allowed

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts unchanged.

        Raise ValueError for one that is no name or address with a port. `*` may be part of the
        name, or the port.
        """
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"a host is a name such as images.example.com or *.example.com, with :PORT "
                    f"where that is another than its scheme's; not {host!r}"
                )
        return hosts

    def allows(self, host: str, port: int | None) -> bool:
        """Return whether a URL's host is allowed; `port` is None for its scheme's default port.

        `host` is a name or an address; IPv6 addresses come without brackets. Case does not count.
        """
        address = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
        return any(_matches(each, address) for each in self.hosts)


def _matches(pattern: str, host: str) -> bool:
    """Return whether a host such as `a.example.com:81` fits an allowed pattern.

    In `pattern`, as in `*.example.com:81`, a star is any text without a colon; case does not count.
    """
    parts = map(re.escape, pattern.lower().split("*"))
    return re.fullmatch("[^:]*".join(parts), host.lower()) is not None


class ImagesConfig(Section):
    """The images that a calibrator reads. One that reads no images needs `ignore`."""

    fetch: Annotated[FetchConfig | None, BeforeValidator(_fetch)] = None
    max_bytes: Size = 10 * 2**20  # of an encoded image
    max_count: int = Field(default=8, gt=0)  # of one question
    ignore: bool = False  # a calibrator that reads none scores the text alone
    score_generated: bool = False  # whether images of `/v1/images/generations` are scored

    @model_validator(mode="after")
    def _check_generated(self) -> ImagesConfig:
        """Raise ValueError where generated images are to be scored but images are ignored."""
        if self.ignore and self.score_generated:
            raise ValueError(
                "'score_generated' asks whether an image depicts its prompt, which without the "
                "image says nothing; remove ignore"
            )
        return self
