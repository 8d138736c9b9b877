"""Calibrators that run elsewhere, asked over HTTP.

A new engine is a section with its `kind` in `config/engines.py` (and in its `ENGINES`) and a case
in `opening.py`. One that answers with log-probabilities is a dialect, as in `vllm.py` and
`sglang.py`, and is named where `opening.py` chooses between these two.
"""

__all__ = ["opening", "scorer_protocol"]
