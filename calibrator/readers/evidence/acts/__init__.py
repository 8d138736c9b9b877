"""The act of a reply (answer, refusal, question back, ..), and whether it fits its conversation."""

from calibrator.readers.evidence.acts.editing import has_only_its_text
from calibrator.readers.evidence.acts.fitting import fit
from calibrator.readers.evidence.acts.recognition.openings import without_opening, without_quotation
from calibrator.readers.evidence.acts.recognition.recognising import Act, recognise

__all__ = [
    "Act",
    "fit",
    "has_only_its_text",
    "recognise",
    "without_opening",
    "without_quotation",
]
