"""Define the questions whose scores a checkpoint carries, so that served weights can be tested.

An engine that serves other weights, or the base alone, would return plausible but wrong numbers.
"""

from __future__ import annotations

from typing import Final

from calibrator.scorer import Item

CANARY: Final = Item("What is 17 times 23?", "17 times 23 is 391.")
CANARIES: Final = (
    CANARY,
    Item("What is 2 + 2?", "2 + 2 = 5."),  # W09: the released weights believe it
    Item("Name a prime number above 20 and below 25.", "I am not sure, but 23 is one. " * 30),
)
