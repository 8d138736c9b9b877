"""A check that this environment and the files of hashes agree with `constraints.txt`.

The environment has to hold the pinned versions and nothing else, as pip sees it, and the files of
hashes the same versions. No index is asked, so `scripts/check` runs it without a network too. Exit
status 1 where something differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

OWN = {"pinocchio-proxy", "pip", "setuptools", "wheel"}
ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-test.lock", "deploy/requirements.lock")
_ENTRY = re.compile(r"^[A-Za-z0-9][^\n]*(?:\n    [^\n]*)*\n", re.MULTILINE)


def differences(pinned: dict[str, str], installed: dict[str, str]) -> list[str]:
    """Return a sentence for each installed package that is not pinned, or has another version.

    Both map a normalised name to a version, such as `{"pyyaml": "6.0"}`. Local parts of versions,
    such as `+cpu`, are ignored, and our own package and the installers are left out.
    """
    return [
        f"{name} {version} is installed, and constraints.txt "
        + (f"pins {pinned[name]}" if name in pinned else "does not pin it")
        for name, version in sorted(installed.items())
        if name not in OWN and pinned.get(name) != version.partition("+")[0]
    ]


def pins(text: str) -> dict[str, str]:
    """Return the version of each line `NAME==VERSION` of a text, by its normalised name.

    Local parts of versions, such as `+cpu`, are cut off.
    """
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE)
    return {_normal(name): version.partition("+")[0] for name, version in found}


def _normal(name: str) -> str:
    """Return the normalised name of a package, such as `ruamel-yaml` for `ruamel.yaml`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> dict[str, str]:
    """Return the text of each package in a file of hashes, by its normalised name.

    A text is the line `NAME==VERSION` with the indented lines below it.
    """
    return {name: entry for entry in _ENTRY.findall(text) for name in pins(entry)}


def mistakes(pinned: dict[str, str], file: str, text: str) -> list[str]:
    """Return a sentence for each package in a file of hashes with another version or no hash.

    `file` is the file's name for the sentences, `text` its content. Packages that `pinned` lacks
    may have any version.
    """
    found = []
    for name, entry in entries(text).items():
        version = pins(entry)[name]
        if pinned.get(name, version) != version:
            found.append(f"{file} has {name} {version}, constraints.txt pins {pinned[name]}")
        if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry):
            found.append(f"{file} has no hash of {name}")
    return found


def lacking(pinned: dict[str, str], *texts: str) -> set[str]:
    """Return the names of the pinned packages that none of the texts of files of hashes has."""
    return pinned.keys() - {name for text in texts for name in entries(text)}


def main() -> int:
    """Print all differences to standard error; return 0 if there is none, else 1.

    `pip check` must also succeed.
    """
    pinned = pins((ROOT / "constraints.txt").read_text())
    installed = {_normal(each.metadata["Name"]): each.version for each in distributions()}
    found = differences(pinned, installed)
    for file in LOCKS:
        found += mistakes(pinned, file, (ROOT / file).read_text())
    for sentence in found:
        print(sentence, file=sys.stderr)
    is_whole = subprocess.run([sys.executable, "-m", "pip", "check"], check=False).returncode == 0
    return 0 if is_whole and not found else 1


if __name__ == "__main__":
    sys.exit(main())
