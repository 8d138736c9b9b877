"""The review desk: people see what is held or audited, and decide.

`desk.py` is what can be done, without HTTP; `guard.py` says who may; `api.py` is the way in for
programs, `login.py` for people. `listening.py` is all that a proxy loads before somebody comes.
"""

__all__ = ["desk", "listening", "waiting_calls"]
