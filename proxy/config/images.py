"""`calibrator.images` in `proxy.yaml`: what is done about the images of questions."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from proxy.config.section import Section, Size

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9*._-]+)(:(\d{1,5}|\*))?")


def _fetch(value: Any) -> Any:
    """`false` is no fetching, `true` fetching from any public host."""
    if isinstance(value, bool):
        return {"hosts": ("*",)} if value else None
    return value


class FetchConfig(Section):
    """From where the images of questions may be fetched.

    A host stands for itself, `*` in it for anything but a port; without a port it is meant with its
    scheme's own one.
    """

    hosts: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    allow_private: bool = False  # addresses of this network

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"a host is a name such as images.example.com or *.example.com, with :PORT "
                    f"where that is another than its scheme's; not {host!r}"
                )
        return hosts

    def allows(self, host: str, port: int | None) -> bool:
        """Whether a host of a URL is one of these; `port` is None for its scheme's own one."""
        asked = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
        return any(_matches(each, asked) for each in self.hosts)


def _matches(host: str, asked: str) -> bool:
    parts = map(re.escape, host.lower().split("*"))
    return re.fullmatch("[^:]*".join(parts), asked.lower()) is not None


class ImagesConfig(Section):
    """For a calibrator that reads images: which it is shown. For others: `ignore`."""

    fetch: Annotated[FetchConfig | None, BeforeValidator(_fetch)] = None
    max_bytes: Size = 10 * 2**20  # of an encoded image
    max_count: int = Field(default=8, gt=0)  # of one question
    ignore: bool = False  # a calibrator that reads none scores the text alone
    score_generated: bool = False  # replies of `/v1/images/generations`, by their prompt

    @model_validator(mode="after")
    def _has_something_to_score(self) -> ImagesConfig:
        if self.ignore and self.score_generated:
            raise ValueError(
                "'score_generated' asks whether an image depicts its prompt, which without the "
                "image says nothing; remove ignore"
            )
        return self
