"""The facts in which the files of deploy/ and the code must agree: variables, ports, times."""

from __future__ import annotations

import re
from typing import Final

from proxy.commands.opening.exits import DEFAULT_PORT
from proxy.config.sections import Config
from proxy.desk.listening import DEFAULT_PORT as DESK_PORT
from proxy.desk.listening import GRACE_S as DESK_GRACE_S
from proxy.routes.admission import PROBES
from proxy.store.database.chain import KEY_VARIABLE
from tests.running.live_proxy import ROOT

DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
USER_ID: Final = 10_001
STORE_FOLDER: Final = "/var/lib/pinocchio"
CONFIG: Final = "/etc/pinocchio/proxy.yaml"
LIMITS: Final = Config().limits
STOP_S: Final = LIMITS.drain_s + LIMITS.grace_s + DESK_GRACE_S  # the longest that a stop may take

__all__ = ["DEFAULT_PORT", "DESK_PORT", "PROBES"]


def known_variables() -> set[str]:
    """Return the environment variables that the code or the image's configuration reads."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "proxy").rglob("*.py"))
    read = set(re.findall(r'environ\.get\("(\w+)"', code)) | {KEY_VARIABLE}
    config = (DEPLOY / "proxy.yaml").read_text(encoding="utf-8")
    return read | set(re.findall(r"\$\{(\w+)", config))
