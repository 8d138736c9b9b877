"""Questions that only knowledge of the world answers, and the few such facts in tables."""

from calibrator.readers.evidence.facts.questions import needs_facts
from calibrator.readers.evidence.facts.tables import check_facts

__all__ = ["check_facts", "fact_file", "needs_facts"]
