"""A writer of the files of hashes for `scripts/lock`.

python scripts/checks/locks.py WHOLE IMAGE

WHOLE is uv's result for the suite; `requirements.lock`, for the proxy alone, exists already. The
suite's further packages go to `requirements-test.lock`, if `constraints.txt` pins them: PyTorch and
the packages of its CUDA build are left out, since indexes have different files of them. IMAGE is
uv's result for `deploy/Dockerfile`; its further packages go to `deploy/requirements.lock`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from audit_pins import LOCKS, ROOT, entries, pins

HEAD = "# The versions of constraints.txt, with hashes of their files; written by scripts/lock.\n"
WITHOUT_HASHES = {"torch"}


def main() -> None:
    """Write the files of hashes `LOCKS` from uv's two results, as the module says.

    A package that `requirements.lock` has is in no other file.
    """
    whole = entries(Path(sys.argv[1]).read_text())
    serving = entries((ROOT / LOCKS[0]).read_text())
    pinned = pins((ROOT / "constraints.txt").read_text())
    names = (whole.keys() & pinned.keys()) - serving.keys() - WITHOUT_HASHES
    more = {name: whole[name] for name in names}
    image = entries(Path(sys.argv[2]).read_text())
    deployed = {name: image[name] for name in image.keys() - serving.keys()}
    for file, kept in zip(LOCKS, (serving, more, deployed), strict=True):
        (ROOT / file).write_text(HEAD + "".join(kept[name] for name in sorted(kept)))


if __name__ == "__main__":
    main()
