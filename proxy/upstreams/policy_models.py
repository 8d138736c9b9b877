"""A check, before a policy is used, that the models it calls are routed."""

from __future__ import annotations

from policies import Policy, Problem, circles
from proxy.errors import UnknownModelError
from proxy.upstreams.router import Router


def model_problems(policy: Policy, router: Router) -> list[Problem]:
    """Return a problem for each model that no route serves and for each circle of escalations."""
    return [
        *(place for model, place in policy.models if not _is_served(model, router)),
        *circles(policy),
    ]


def _is_served(model: str, router: Router) -> bool:
    try:
        router.name_for(model)
    except UnknownModelError:
        return False
    return True
