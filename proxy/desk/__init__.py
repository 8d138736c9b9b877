"""The review desk, where people see held and audited replies and decide on them.

`decisions/desk.py` has the operations, without HTTP (`Desk.decide` releases a held reply).
`access/` decides who may use them, `api.py` serves programs, and `console/` serves people. Before
the desk's first request only `listening.py` is imported, and `figures.py`, which every worker uses
at a scrape.
"""

__all__ = ["figures", "listening", "webhooks"]
