"""A summary of the configured upstreams for people, printed at the start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from policies import InvalidDocumentError, load_document
from proxy.config.sections import Config
from proxy.config.settings.upstreams import UpstreamConfig
from proxy.upstreams.loops import address_of

_VARIABLE: Final = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)")
_BUILT_IN: Final = {"openai": {"base_url": "${OPENAI_BASE_URL}", "api_key": "${OPENAI_API_KEY}"}}


def upstream_lines(config: Config, path: Path | None) -> Iterator[str]:
    """Yield a line for each upstream: its address, the source of its key and its models.

    Secrets are never included, only the names of their variables.
    """
    sections = _read_upstreams(path)
    for name, upstream in config.upstreams.items():
        section = sections.get(name)
        section = section if isinstance(section, dict) else {}
        parts = ["canned answers, no network"]
        if not upstream.demo:
            parts = [_place(upstream, section), _key(upstream, section, path)]
        models = [route.match for route in config.models if route.upstream == name]
        yield f"upstream {name}: {', '.join(parts)}; models: {', '.join(models) or 'none'}"


def _read_upstreams(path: Path | None) -> dict[str, Any]:
    """Return the section `upstreams` as written in the file, with variables as `${NAME}`.

    Without a file, or that section, it is the built-in one; empty if the file cannot be read.
    """
    if path is None:
        return _BUILT_IN
    try:
        value = load_document(path).value
    except InvalidDocumentError:  # the file has changed meanwhile
        return {}
    upstreams = value.get("upstreams") if isinstance(value, dict) else None
    return upstreams if isinstance(upstreams, dict) else _BUILT_IN


def _place(upstream: UpstreamConfig, section: dict[str, Any]) -> str:
    """Return where requests to this upstream go, with the variables that say so.

    For example `https://api.openai.com/v1 (from OPENAI_BASE_URL)`; `section` is as written.
    """
    if upstream.base_url is None:
        return "where litellm finds it" if upstream.litellm == "auto" else f"{upstream.litellm}"
    text = address_of(upstream.base_url)
    text += "".join(f" (from {name})" for name in _set_variables(section.get("base_url")))
    is_translated = upstream.litellm or upstream.via == "litellm"
    return f"{text} through litellm" if is_translated else text


def _key(upstream: UpstreamConfig, section: dict[str, Any], path: Path | None) -> str:
    """Return where the key of requests to this upstream comes from, as words.

    For example `key from OPENAI_API_KEY` or `each client's own key`.
    """
    text = section.get("api_key")
    if upstream.api_key.get_secret_value():
        variables = _set_variables(text)
        return f"key from {', '.join(variables) or path or 'the configuration'}"
    unset = [name for name in _variables(text) if not os.environ.get(name)]
    reason = f" ({', '.join(unset)} is not set)" if unset else ""
    if upstream.lends_a_key:
        return f"key that litellm finds in the environment{reason}"
    return f"each client's own key{reason}"


def _variables(text: Any) -> list[str]:
    """Return the names of the variables in a text such as `${OPENAI_API_KEY}`; none otherwise."""
    return _VARIABLE.findall(text) if isinstance(text, str) else []


def _set_variables(text: Any) -> list[str]:
    """Return the names of a text's variables that have a value in the environment."""
    return [name for name in _variables(text) if os.environ.get(name)]
