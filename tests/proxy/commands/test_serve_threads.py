"""The threads of numpy's linear algebra in a process that serves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = "OPENBLAS_NUM_THREADS"
# The program that would serve imports numpy and counts, as loading a calibrator does.
COUNTS = """\
import sys
import proxy.startup.startup
import pinocchio.__main__ as command

def count(*given):
    import numpy
    from threadpoolctl import threadpool_info
    print("threads", max((found["num_threads"] for found in threadpool_info()), default=1))

assert "numpy" not in sys.modules
proxy.startup.startup.serve = count
sys.argv = ["pinocchio", "serve"]
command.main()
"""


@pytest.mark.parametrize("own", [None, "2"])
def test_numpy_takes_one_thread_unless_told_otherwise(own: str | None) -> None:
    """A process that serves uses one thread, unless the environment has a number."""
    kept = {k: v for k, v in os.environ.items() if k not in (THREADS, "OMP_NUM_THREADS")}
    environment = {} if own is None else {THREADS: own}
    printed = subprocess.run(
        [sys.executable, "-c", COUNTS],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    wanted = min(int(own or 1), os.cpu_count() or 1)
    assert f"threads {wanted}\n" in printed.stdout, printed.stderr
