"""The studies of a calibrator with data left out of training, or changed in the input."""

__all__ = [
    "answer_swap",
    "beside_shipped",
    "calls_study",
    "cascade_study",
    "elicitations",
    "embedded_fit",
    "failures",
    "opinion_leave_out",
    "opinion_study",
    "probes",
    "sources",
    "studies",
]
