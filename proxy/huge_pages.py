"""Huge pages for Python's objects, once everything that a serving process needs is loaded.

A processor caches the places of some thousand pages, and looks for others in tables that are in
memory too. The objects of one request are in many small pages, and its code in many more.
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

PAGE, HUGE_PAGE = 2**12, 2**21  # bytes; pages of other sizes are not joined
MADV_COLLAPSE = 25  # of Linux 6.1 and later
PRESENT_AND_OURS = 1 << 63 | 1 << 56  # bits of an entry of /proc/self/pagemap
MOSTLY = 0.75  # the least used share of a huge page, so that joining takes little more memory
AGAIN_S = 30.0  # until the second time, when requests have taken their memory
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

log = structlog.get_logger(__name__)


def join_pages_by_and_by() -> None:
    """Join pages in a thread of its own, now and once more after requests have arrived.

    The number is logged at the level `debug`.
    """

    def join() -> None:
        for wait_s in (0.0, AGAIN_S):
            time.sleep(wait_s)
            if count := join_pages():
                log.debug("pages_joined", count=count, megabytes=count * HUGE_PAGE // 2**20)

    threading.Thread(target=join, name="join-pages", daemon=True).start()


def join_pages() -> int:
    """Make Linux join the small pages of Python's objects to huge ones, and return their number.

    Pages that another process shares stay unchanged, and all do where the machine's owner has
    turned huge pages off.
    """
    joined = 0
    # suppressed: another system, a sandbox, or a kernel without this call
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
    """Yield the addresses of mostly used huge pages; raises OSError where the kernel hides them."""
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
