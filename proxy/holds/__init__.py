"""Held replies: stored, bound to their request, waited for, fetched.

People decide at the desk (`desk/desk.py`); whoever waits here hears of it by `Verdicts.hear`, which
`desk/listening.py` calls, and of a decision made elsewhere by asking the store. `Holding.standing`
gives what a hold came to; `completions/apply.py` sends it.
"""

__all__ = ["binding", "held", "hold", "kept_scores", "named_ids", "ownership", "waiting"]
