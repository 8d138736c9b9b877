"""Checks on who may send requests, how often, and from where.

`proxy/routes/admission.py` combines these parts and admits a request.
"""

__all__ = [
    "allowance",
    "host_check",
    "key_hash",
    "live_work",
    "rate_limits",
    "secret_keys",
]
