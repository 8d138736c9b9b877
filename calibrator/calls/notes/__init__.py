"""What speaks against a call, and how bad it would be: plain facts, no model.

`calibrator.scorer.MARKS` lists every mark with its meaning; `notes.call_notes` gives the marks and
the risk of each call of a reply.
"""

__all__ = ["marks", "notes", "risk", "said"]
