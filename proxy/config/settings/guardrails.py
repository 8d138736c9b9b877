"""`guardrails:` of proxy.yaml: a listener for other gateways that want their replies scored."""

from __future__ import annotations

import os

from pydantic import Field, SecretStr

from proxy.config.settings.section import Secret, Section

DEFAULT_PORT = 8_002


class GuardrailsConfig(Section):
    """The listener for other gateways; beyond loopback a token is required."""

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535)
    token: Secret = Field(
        default_factory=lambda: SecretStr(os.environ.get("PINOCCHIO_GUARDRAILS_TOKEN", ""))
    )

    @property
    def secret(self) -> bytes:
        """The token as bytes; empty where none is required."""
        return self.token.get_secret_value().encode()
