"""Held replies: how they are stored, bound to their request, waited for and fetched.

Reviewers decide at the desk (`desk/desk.py`). `desk/listening.py` then calls `Verdicts.hear` to
wake the requests that wait here; decisions made in other processes are found by polling the store.
`Holding.standing` returns the state of a hold, and `completions/apply.py` sends it.
"""

__all__ = ["binding", "held", "hold", "kept_scores", "named_ids", "ownership", "waiting"]
