"""The names under which models are rated: `calibrator.models: {gpt-6-sol: {like: gpt-5.4}}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from calibrator import plain_name


def model_renamer(rated_like: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from a model's name to the name under which it is rated.

    A name is looked up as it is, then without its owner, its date and what gateways add, as APIs
    report `gpt-6-sol-2026-09-01` for `gpt-6-sol`.
    """
    if not rated_like:
        return lambda name: name
    plain = {plain_name(name): like for name, like in rated_like.items()}

    @lru_cache(maxsize=1_024)
    def rated_as(name: str) -> str:
        return rated_like.get(name) or plain.get(plain_name(name), name)

    return rated_as
