"""Synthetic pairs of a context and a reply, with the label whether the context supports the reply.

`python -m calibrator.lab.data.evidence` writes them to a file. Kinds of context are policies
(`mixture`, with `facts` and `replies`), `tables`, `passages` and `dialogues`;
`corpora.from_passages` makes pairs from given texts by its edits and those of `edits`. The words
and templates are in `words/*.yaml`.
"""

__all__ = ["corpora", "mixture"]
