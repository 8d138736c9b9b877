"""The priority of the scorer's threads relative to the event loop's."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICENESS = 10  # added to the thread's; Linux allows up to 19


def step_back() -> None:
    """Lower the priority of the calling thread and of those that it starts.

    The event loop then runs first when threads share a core. Otherwise the loop of a process on one
    core has a third of its throughput while scores queue; with it, two thirds or more.
    """
    if sys.platform == "linux":  # elsewhere it would apply to the whole process
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
