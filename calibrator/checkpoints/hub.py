"""Models of the hub by name: downloaded once, then offline, always in the same revision.

`owner/name` is pinned to its commit at the first download, `owner/name@REVISION` to that revision.
Only data is downloaded: JSON, templates and safetensors, no pickles and no code.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from calibrator.errors import CheckpointError, HubError

WANTED = ("*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt")
_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def is_hub_name(name: str) -> bool:
    """Return whether a name is `owner/name` or `owner/name@revision`."""
    return not name.startswith((".", "/", "~")) and _NAME.fullmatch(name) is not None


def pins_path() -> Path:
    """Return the path of the JSON file with the commits at which names were first downloaded.

    It is `pinocchio/revisions.json` in the user's cache folder, and need not exist.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pinocchio" / "revisions.json"


def download(name: str, revision: str | None = None, *, instead: str = "use 'embedded'") -> Path:
    """Return the folder of a hub model `owner/name`, downloading it where it is not here yet.

    It stays at the revision of its first download, unless `revision` or `@REVISION` in the name
    states another. `instead` suggests another way in the error message. Raises HubError where the
    model cannot be downloaded, CheckpointError for two revisions of one model.
    """
    name, _, named = name.partition("@")
    if named and revision and named != revision:
        raise CheckpointError(f"{name!r} is asked for at {named!r} and at {revision!r}")
    wanted = revision or named or _pins().get(name)
    if wanted and (folder := _find_download(name, wanted)):
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=wanted, allow_patterns=list(WANTED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        full_name = f"{name}@{wanted}" if wanted else name
        raise HubError(
            f"{full_name!r} is neither a folder nor could it be downloaded from the hub "
            f"({type(error).__name__}); check the name and the network, or {instead}"
        ) from error
    _pin(name, wanted, folder.name)  # a snapshot's folder has the name of its commit
    return folder


def _find_download(name: str, revision: str) -> Path | None:
    """Return the folder of a model's finished download at a revision or commit, or None.

    The network is not used. Raises HubError for a bad file of pins.
    """
    commit = _pins().get(f"{name}@{revision}", revision)
    if _pins().get(f"{name}@{commit}") != commit:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=commit, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def _pin(name: str, revision: str | None, commit: str) -> None:
    """Record in the file of pins that a commit is complete, for its name and revision.

    The first commit of a name stays its pin. Raises HubError where the file cannot be written.
    """
    pins = _pins()
    pins.setdefault(name, commit)
    pins |= {f"{name}@{commit}": commit, f"{name}@{revision or commit}": commit}
    path = pins_path()
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(pins, indent=1, sort_keys=True), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise HubError(f"the revision of {name!r} cannot be noted in {path}: {error}") from error


def _pins() -> dict[str, str]:
    """Return the pinned commits by `name` and `name@revision`; empty without a file.

    Raises HubError for a bad file.
    """
    try:
        found = json.loads(pins_path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise HubError(f"{pins_path()} cannot be read: {error}; mend or remove it") from error
    if not isinstance(found, dict):
        raise HubError(f"{pins_path()} is no object of names and commits; mend or remove it")
    return found
