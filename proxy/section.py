"""What sections of a configuration are made of: strict, immutable, with hidden secrets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


def _secret(value: Any) -> Any:
    """An unquoted `${KEY:-}` is null in YAML, and a key of digits a number."""
    return "" if value is None else str(value) if isinstance(value, int) else value


Secret = Annotated[SecretStr, BeforeValidator(_secret)]
