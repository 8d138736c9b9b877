"""The errors of the calibrator.

    CalibratorError
    ├── RowError              one row of a JSON lines file is unusable; names the row and the reason
    ├── CheckpointError       a checkpoint folder is missing, damaged or of an unknown kind
    │   └── HubError          a checkpoint's hub cannot be reached and nothing is cached
    ├── TrainingError         a training run cannot start or go on
    ├── JudgingError          rows or scores from which no figure or curve can be computed
    ├── InputError            a file of rows, scores or the like cannot be read
    ├── OutputError           a file cannot be written at the requested place
    ├── QueueFullError        the scoring queue is full
    ├── NotScorableError      a reply that no calibrator of this kind can score (has a `reason`)
    ├── ClusterError          scoring on a Ray cluster cannot start, go on or end
    ├── UnavailableError      the scorer itself cannot answer now (has a `reason`)
    └── MissingExtraError     a package of an optional extra is not installed

Errors of safetensors, tokenizers, torch and the hub's client are translated where a checkpoint is
loaded (`checkpoint.py`, `calibrator/embedded/parts.py`) and chained.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

DISTRIBUTION = "pinocchio-proxy"


class CalibratorError(Exception):
    """The base class of the errors that `calibrator` raises on purpose."""


class RowError(CalibratorError):
    """One row cannot be used; `source` and `line` (from 1) locate it."""

    def __init__(self, source: str, line: int, message: str) -> None:
        """Make the error `source:line: message`; the three arguments are kept as attributes."""
        super().__init__(f"{source}:{line}: {message}")
        self.source = source
        self.line = line
        self.message = message


class CheckpointError(CalibratorError):
    """A checkpoint cannot be used."""


class HubError(CheckpointError):
    """A checkpoint is not on disk and cannot be downloaded."""


class TrainingError(CalibratorError):
    """A training run cannot start or go on."""


class JudgingError(CalibratorError):
    """Rows or scores do not allow the requested figure, fit or curve."""


class InputError(CalibratorError):
    """A named file cannot be read; raised before the work begins."""


class OutputError(CalibratorError):
    """A result cannot be written at the requested place; raised before the work begins."""


class QueueFullError(CalibratorError):
    """The scoring queue is full; the item was not queued."""


class NotScorableError(CalibratorError):
    """The calibrator has no number for this reply; `reason` is one machine-readable word."""

    def __init__(self, reason: str, message: str) -> None:
        """Make the error; `reason` is one machine-readable word such as `image_size`."""
        super().__init__(message)
        self.reason = reason


class ClusterError(CalibratorError):
    """Files cannot be scored on a Ray cluster; finished parts stay."""


class UnavailableError(CalibratorError):
    """The scorer cannot answer now, whatever the item; `reason` is one machine-readable word."""

    def __init__(self, reason: str, message: str) -> None:
        """Make the error; `reason` is one machine-readable word."""
        super().__init__(message)
        self.reason = reason


class MissingExtraError(CalibratorError):
    """A package is missing; the message has the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        """Make the error for a library `package` that comes with our optional extra `extra`."""
        super().__init__(f"{package} is not installed; it comes with: {install_command(extra)}")


def os_error_sentence(error: OSError) -> str:
    """Return the message `FILE cannot be used: REASON` for an OSError.

    An error without a file's name or a reason gives its own text.
    """
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename} cannot be used: {error.strerror}"


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra, such as `torch`, to this installation.

    For a clone or a wheel pip needs the path, since no index has the project. The command names the
    interpreter, since another `pip` would install elsewhere.
    """
    return f"{shlex.quote(sys.executable)} -m pip install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    """Return pip's argument for an extra, such as `'pinocchio-proxy[torch]'`.

    It depends on whether this installation came from an index, a URL or a folder.
    """
    from urllib.parse import unquote, urlsplit

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
    """Return pip's `direct_url.json` of the installed distribution (PEP 610).

    An empty dict if it came from an index, is not installed, or the file is no object.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
