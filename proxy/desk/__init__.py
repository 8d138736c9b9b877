"""The review desk: people see what is held or audited, and decide.

`desk.py` is what can be done, without HTTP (`Desk.decide` releases a held reply); `access/` says
who may; `api.py` is the way in for programs, `console/` for people. Until the desk's first request
only `listening.py` is imported, and `figures.py`, which every worker tells the desk at a scrape.
"""

__all__ = ["basis", "desk", "figures", "listening", "standing", "waiting_calls"]
