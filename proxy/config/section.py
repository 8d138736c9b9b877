"""What sections of a configuration are made of: strict, immutable, with hidden secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB)?", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _is_empty_as_null(cls, value: Any) -> Any:
        """A section whose lines are all commented out is null in YAML: its defaults hold."""
        return {} if value is None else value


def _secret(value: Any) -> Any:
    """An unquoted `${KEY:-}` is null in YAML, and a key of digits a number."""
    return "" if value is None else str(value) if isinstance(value, int) else value


def _size(value: Any) -> Any:
    """64MB -> 67108864."""
    if not isinstance(value, str):
        return value
    if not (match := _SIZE.fullmatch(value.strip())):
        raise ValueError(f"a size is a whole number with B, KB, MB or GB, not {value!r}")
    return int(match[1]) * _UNITS[(match[2] or "B").upper()]


Secret = Annotated[SecretStr, BeforeValidator(_secret)]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
