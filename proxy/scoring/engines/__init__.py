"""Engines: calibrators that run elsewhere and are called over HTTP.

A new engine is a class with the methods of `Engine` in `remote.py`; a section with its `kind` in
`config/settings/engines.py`, in the union `Engine` and in `ENGINES`; and a case in `open_engine`
and one in `name_of_scores` of `opening.py`. An engine that answers with log-probabilities is a
dialect, as in `token_ids.py`, and is added where `opening.py` chooses between the two there.
`scorer_protocol.py` defines the messages between our own scoring server and its clients.
"""

__all__ = ["findings", "opening", "scorer_protocol"]
