"""The studies of a calibrator with data left out of training, or changed in the input."""

__all__ = [
    "answer_swap",
    "cascade_study",
    "elicitations",
    "embedded_fit",
    "failures",
    "probes",
    "sources",
    "studies",
]
