"""Synthetic pairs of a context and a reply, with the label whether the context supports the reply.

`python -m calibrator.lab.data.evidence` writes them to a file. Each kind of context has a module:
`policies` (with `facts` and `replies`), `tables` (with `statements`), `passages` and `dialogues`;
`corpora.from_passages` makes pairs from given texts by the edits of `edits` and `rewording`. The
words and templates are in `words/*.yaml`.
"""

__all__ = ["corpora", "mixture"]
