"""The build hook that compiles the kernel when the package is installed.

hatchling calls `KernelHook` for each wheel (`pyproject.toml`), also an editable one. The module
uses Python's stable interface, so one wheel for a platform serves all versions from 3.11 on.
Without a C compiler, or with `PINOCCHIO_KERNEL=numpy`, the wheel is a pure one and numpy computes
scores.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("calibrator", "kernel")
MODULE, SOURCE = "_compiled.abi3.so", "source"
# Without fused operations every machine computes the same numbers.
FLAGS = "-O3 -std=gnu11 -fPIC -fno-math-errno -ffp-contract=off -fvisibility=hidden -Wno-psabi"


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]  # it reads no configuration
    """Adds the module to a wheel and names the platform in it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module and add it to the wheel, or warn and leave it out where that fails.

        `build_data` is changed in place. Nothing happens for a source distribution, or if
        `PINOCCHIO_KERNEL` is `numpy`.
        """
        if self.target_name != "wheel" or os.environ.get("PINOCCHIO_KERNEL") == "numpy":
            return
        fault = build(Path(self.root, FOLDER))
        if fault:
            self.app.display_warning(f"no compiled kernel, numpy will do its work: {fault}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["artifacts"].append(str(FOLDER / MODULE))


def build(folder: Path, *more: str) -> str:
    """Compile the C files in `folder/source/` to a module in `folder`; `more` are flags.

    The new module replaces an old one. Returns the reason of a failure, or "".
    """
    module = folder / MODULE
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if not linker:
        return "this Python names no linker"
    if compiler := shlex.split(os.environ.get("CC", "")):
        linker[:1] = compiler
    own = [
        *shlex.split(os.environ.get("CFLAGS", "")),
        *shlex.split(os.environ.get("ARCHFLAGS", "")),
    ]
    include = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    sources = sorted(map(str, (folder / SOURCE).glob("*.c")))
    # The new file replaces the old one only when finished, since a server may be using that.
    new = module.with_suffix(f".{os.getpid()}")
    digest = f'-DSOURCES="{sources_digest(folder / SOURCE)}"'
    command = [
        *linker,
        *FLAGS.split(),
        *own,
        *more,
        digest,
        *include,
        *sources,
        "-o",
        str(new),
        "-lm",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            new.replace(module)
            return ""
        return (done.stderr.strip() or f"{linker[0]} gave {done.returncode}").splitlines()[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        new.unlink(missing_ok=True)


def sources_digest(folder: Path) -> str:
    """Return a CRC-32 of a folder's C files in hexadecimal digits.

    `calibrator.kernel` computes the same, to recognize a module of other files.
    """
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"
