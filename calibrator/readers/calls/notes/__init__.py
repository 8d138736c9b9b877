"""The evidence against a call, and the damage of a wrong one: plain facts, no model.

`calibrator.scorer.MARKS` lists every mark with its meaning; `marks.call_notes` returns the marks
and the risk of each call of a reply.
"""

__all__ = ["chat_text", "marks", "risk"]
