"""A listener for the guardrails of other gateways, with the proxy's scores, policies and record.

A gateway sends a reply that it already has. `visits.py` handles it like a reply of the proxy, from
the score on. Each contract has a module: `litellm.py`, `portkey.py`, `agentgateway.py` and
`analyze.py`. `systemone.py` answers requests for the number alone, and holds nothing.
"""

__all__ = ["listening"]
