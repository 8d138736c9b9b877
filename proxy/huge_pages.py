"""Python's objects in huge pages, once what a process that serves needs is loaded.

A processor remembers where some thousand pages lie, and looks for others in tables that are in
memory too. Objects of one request lie in many small pages, and code that it passes in many more.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

PAGE, HUGE_PAGE = 2**12, 2**21  # bytes; where pages are of other sizes, nothing is joined
MADV_COLLAPSE = 25  # of Linux 6.1 and later
PRESENT_AND_OURS = 1 << 63 | 1 << 56  # of an entry of /proc/self/pagemap
MOSTLY = 0.75  # of a huge page is there already: joining it takes little more memory
AGAIN_S = 30.0  # then what requests take is there too
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

log = structlog.get_logger(__name__)


def join_pages_by_and_by() -> None:
    """Joins pages in a thread of its own, now and once more when requests have come; the log says
    how many, for those who debug."""

    def join() -> None:
        for wait_s in (0.0, AGAIN_S):
            time.sleep(wait_s)
            if count := join_pages():
                log.debug("pages_joined", count=count, megabytes=count * HUGE_PAGE // 2**20)

    threading.Thread(target=join, name="join-pages", daemon=True).start()


def join_pages() -> int:
    """Has Linux join the small pages of Python's objects to huge ones, and returns how many of
    these there are now.

    Pages that another process shares stay as they are, and all do where the machine's owner has
    turned huge pages off.
    """
    joined = 0
    # another system, a sandbox, or a kernel that knows no such thing
    with suppress(OSError, AttributeError, ValueError):
        if mmap.PAGESIZE != PAGE or "[never]" in HUGE_PAGES.read_text(encoding="ascii"):
            return 0
        advise = ctypes.CDLL(None, use_errno=True).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for start in _worth_joining():
            if advise(start, HUGE_PAGE, MADV_COLLAPSE) == 0:
                joined += 1
            elif ctypes.get_errno() == errno.EINVAL:
                break
    return joined


def _worth_joining() -> Iterator[int]:
    """Addresses of memory that makes a huge page each; raises OSError where nobody can tell."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            place, rights, _, _, inode, *name = line.split(maxsplit=5)
            is_plain = not name or name[0].startswith(("[heap]", "[anon:"))
            if rights != "rw-p" or inode != "0" or not is_plain:
                continue
            start, end = (int(each, 16) for each in place.split("-"))
            for at in range(-(-start // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
                pages.seek(at // PAGE * 8)
                entries = array("Q", pages.read(HUGE_PAGE // PAGE * 8))
                ours = sum(each & PRESENT_AND_OURS == PRESENT_AND_OURS for each in entries)
                if ours >= MOSTLY * len(entries):
                    yield at
