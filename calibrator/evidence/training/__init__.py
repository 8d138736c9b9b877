"""Trains what checks replies against their context: the reader, and the trees above it.

`python -m calibrator.evidence.training --data $DATA/grounding -o FOLDER` writes
`evidence.safetensors`; `sources.yaml` lists the files that it learns from.
"""

__all__ = ["examples", "reader_fit", "support_fit"]
