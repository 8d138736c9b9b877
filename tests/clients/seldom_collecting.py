"""A pytest plugin that makes a process collect garbage seldom.

Nearly all objects that a client's libraries import stay for the whole run. With `-p
tests.clients.seldom_collecting`, this is set before the modules of cases import their library.
"""

from __future__ import annotations

import gc

gc.set_threshold(50_000, 20, 50)
