"""The act of a reply (answer, refusal, question back, ..), and whether it fits its conversation."""

from calibrator.evidence.acts.chat.editing import has_only_its_text
from calibrator.evidence.acts.fitting import fit
from calibrator.evidence.acts.openings import without_opening
from calibrator.evidence.acts.quotations import without_quotation
from calibrator.evidence.acts.recognising import Act, recognise

__all__ = [
    "Act",
    "fit",
    "has_only_its_text",
    "recognise",
    "without_opening",
    "without_quotation",
]
