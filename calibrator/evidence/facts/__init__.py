"""Questions that only knowledge of the world answers, and the few such facts in tables."""

from calibrator.evidence.facts.questions import needs_facts
from calibrator.evidence.facts.tables import check_facts

__all__ = ["check_facts", "needs_facts"]
