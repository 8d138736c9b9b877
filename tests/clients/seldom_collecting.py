"""Lets a process collect garbage seldom: nearly all that a client's libraries import stays.

A plugin of pytest (`-p tests.clients.seldom_collecting`): modules of cases import their library
before anything of ours.
"""

from __future__ import annotations

import gc

gc.set_threshold(50_000, 20, 50)
