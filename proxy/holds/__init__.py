"""Held replies: how they are stored, bound to their request, waited for and fetched.

Reviewers decide at the desk (`desk/decisions/desk.py`). `desk/listening.py` then calls
`Verdicts.wake` to wake the requests that wait here; decisions made in other processes are found by
polling the store. `Holds.wait_for_state` returns the state of a hold, and `completions/apply.py`
sends it.
"""

__all__ = [
    "binding",
    "conversations",
    "held",
    "hold",
    "interrupted_calls",
    "kept_scores",
    "mcp_approvals",
    "named_ids",
    "openings",
    "ownership",
    "stream_results",
    "waiting",
]
