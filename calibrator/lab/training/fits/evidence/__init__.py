"""The training of the checks of replies against their context: the reader, and the trees above it.

`python -m calibrator.lab.training.fits.evidence --data $DATA/grounding -o FOLDER` writes
`evidence.safetensors`; `sources.yaml` lists the training files.
"""

__all__ = ["examples", "reader_fit", "support_fit"]
