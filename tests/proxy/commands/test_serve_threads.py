"""The threads of numpy's linear algebra in a process that serves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = "OPENBLAS_NUM_THREADS"
# what would serve imports numpy and counts, as the calibrator does when it is loaded
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
    """A score waits for no second core; the environment's own number holds where there is one."""
    kept = {k: v for k, v in os.environ.items() if k not in (THREADS, "OMP_NUM_THREADS")}
    given = {} if own is None else {THREADS: own}
    printed = subprocess.run(
        [sys.executable, "-c", COUNTS], env=kept | given, capture_output=True, text=True, timeout=60
    )
    wanted = min(int(own or 1), os.cpu_count() or 1)
    assert f"threads {wanted}\n" in printed.stdout, printed.stderr
