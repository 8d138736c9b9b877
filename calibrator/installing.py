"""The origin of this installation, and the command that adds an extra to it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "pinocchio-proxy"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, whatever its origin.

    For a clone or a wheel pip needs the path, since no index has the project. The command names the
    interpreter, since another `pip` would install elsewhere.
    """
    return f"{sys.executable} -m pip install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    origin = _origin()
    url = str(origin.get("url", ""))
    if not url:
        return f"'{DISTRIBUTION}[{extra}]'"
    if "dir_info" not in origin:
        return f"'{DISTRIBUTION}[{extra}] @ {url}'"
    folder = unquote(urlsplit(url).path)
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"{editable}'{folder}[{extra}]'"


def _origin() -> dict[str, Any]:
    """Return pip's record of the distribution's origin (PEP 610); empty for an index."""
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
