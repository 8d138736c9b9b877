"""Whether the models that a policy has asked can be asked: found out before it serves."""

from __future__ import annotations

from policies import Policy, Problem, circles
from proxy.errors import UnknownModelError
from proxy.upstreams.router import Router


def model_problems(policy: Policy, router: Router) -> list[Problem]:
    """The models that no route serves, and escalations in a circle, with their places."""
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
