"""Threads for what would keep the event loop from everybody else: reading what is large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

AT_A_TIME = 2  # large bodies that are read; more of them wait, and keep no more memory
_threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="read-large")


async def apart(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """The result of `work`, done on a thread of few; raises what it raises."""
    call = partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
