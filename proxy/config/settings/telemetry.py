"""`telemetry:` of proxy.yaml: where calls and confidences are sent, besides log and record."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from proxy.config.settings.section import Secret, Section


def _address(value: str) -> str:
    """Return an http(s) address without final slashes; raise ValueError for any other text.

    A user, a query and a fragment are refused.
    """
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^?#\s]*)?", value):
        raise ValueError(
            "an address begins with http:// or https:// and names no user; keys have a place of "
            "their own"
        )
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


class OtelConfig(Section):
    """An OpenTelemetry collector over HTTP: `/v1/traces` and `/v1/logs` of `endpoint`."""

    endpoint: Address = "http://127.0.0.1:4318"
    headers: dict[str, Secret] = Field(default_factory=dict)
    sample: float = Field(default=1.0, ge=0, le=1)  # the share of requests without a client's trace


class LangfuseConfig(Section):
    """Langfuse: confidences score the client's traces, or ours where `otel` sends them."""

    base_url: Address = "https://cloud.langfuse.com"
    public_key: str = ""
    secret_key: Secret = SecretStr("")

    @model_validator(mode="after")
    def _has_keys(self) -> LangfuseConfig:
        """Raise ValueError unless both keys are set."""
        if not (self.public_key and self.secret_key.get_secret_value()):
            raise ValueError("Langfuse asks for both: set public_key and secret_key")
        return self


class PhoenixConfig(Section):
    """Phoenix: confidences annotate the client's spans, or ours where `otel` sends them."""

    base_url: Address = "http://127.0.0.1:6006"
    api_key: Secret = SecretStr("")
    project: str = "default"  # whose spans people annotate


class TelemetryConfig(Section):
    """The services that receive calls and confidences; none by default."""

    otel: OtelConfig | None = None
    langfuse: LangfuseConfig | None = None
    phoenix: PhoenixConfig | None = None

    @property
    def is_on(self) -> bool:
        """Whether any service is configured."""
        return any((self.otel, self.langfuse, self.phoenix))
