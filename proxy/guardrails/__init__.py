"""A listener for the guardrails of other gateways: the same scores, policies and record.

A gateway asks about a reply that it has; `visits.py` sends it the way of the proxy's own, from the
score on. Each contract is a module: `litellm.py`, `portkey.py`, `agentgateway.py`, `analyze.py`.
`systemone.py` answers who asks for the number alone, and holds nothing.
"""

__all__ = ["listening"]
