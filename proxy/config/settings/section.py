"""The base of all sections of a configuration: strict, immutable, with hidden secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB)?", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


class Section(BaseModel):
    """A section of `proxy.yaml`, immutable: unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _is_empty_as_null(cls, value: Any) -> Any:
        """Replace null, which a section of comments alone is in YAML, by an empty mapping."""
        return {} if value is None else value


def _secret(value: Any) -> Any:
    """Convert null to "" and integers to text; return any other value unchanged.

    An unquoted `${KEY:-}` is null, and a key of digits is an int.
    """
    return "" if value is None else str(value) if isinstance(value, int) else value


def _size(value: Any) -> Any:
    """Convert text such as `64MB` to bytes, here 67108864; return numbers and the like unchanged.

    `KB` is 1024, and no unit is bytes. Raises ValueError for any other text.
    """
    if not isinstance(value, str):
        return value
    if not (match := _SIZE.fullmatch(value.strip())):
        raise ValueError(f"a size is a whole number with B, KB, MB or GB, not {value!r}")
    return int(match[1]) * _UNITS[(match[2] or "B").upper()]


Secret = Annotated[SecretStr, BeforeValidator(_secret)]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
