"""Whether this environment has what `constraints.txt` pins and nothing else, as pip knows it.

Asks no index: for `scripts/check`, also without a network. Exit status 1 where something differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

OWN = {"pinocchio-proxy", "pip", "setuptools", "wheel"}


def differences(pinned: dict[str, str], installed: dict[str, str]) -> list[str]:
    """A sentence for each package that is not as it is pinned."""
    return [
        f"{name} {version} is installed, and constraints.txt "
        + (f"pins {pinned[name]}" if name in pinned else "does not pin it")
        for name, version in sorted(installed.items())
        if name not in OWN and pinned.get(name) != version.partition("+")[0]
    ]


def pins(text: str) -> dict[str, str]:
    """The version of each package, by its normalised name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE)
    return {_normal(name): version.partition("+")[0] for name, version in found}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    text = (Path(__file__).parents[2] / "constraints.txt").read_text()
    installed = {_normal(each.metadata["Name"]): each.version for each in distributions()}
    for sentence in (found := differences(pins(text), installed)):
        print(sentence, file=sys.stderr)
    is_whole = subprocess.run([sys.executable, "-m", "pip", "check"], check=False).returncode == 0
    return 0 if is_whole and not found else 1


if __name__ == "__main__":
    sys.exit(main())
