"""Several policies on one request: each decides, and the strictest decision counts.

The first is the one that holds for the caller; a client may ask for a second one, which can only
make more of its replies wait or be withheld.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from policies import Decision, Facts, Policy, StreamMode, stream_mode, strictest
from policies import after_escalation as after_escalation_by
from policies import decide as decide_by
from proxy.errors import BadRequestError

STRICTNESS: Final = ("passthrough", "buffer_tools", "buffer")


def with_asked(policies: tuple[Policy, ...], asked: Policy) -> tuple[Policy, ...]:
    """The policies with one that a request asks for.

    Raises BadRequestError for one that would have more models asked: that is not stricter.
    """
    if asked.ask is not None:
        raise BadRequestError(
            f"policy {asked.name!r} asks several times, which no request can ask for",
            code="unusable_policy",
        )
    return (*policies, asked)


def deciding(policies: Sequence[Policy]) -> Callable[[Facts], Decision]:
    """How these policies decide; for one alone it is `policies.decide` itself."""
    if len(policies) == 1:
        return partial(decide_by, policies[0])
    return lambda facts: strictest(decide_by(policy, facts) for policy in policies)


def after_escalation(policies: Sequence[Policy], decision: Decision, facts: Facts) -> Decision:
    """What happens to the reply that an escalation kept."""
    return strictest(after_escalation_by(policy, decision, facts) for policy in policies)


def strictest_mode(
    policies: Sequence[Policy],
    *,
    model: str,
    domain: str | None,
    tags: frozenset[str],
    team: str | None,
    key: str | None,
) -> StreamMode:
    """How a stream has to be sent so that each of the policies can still decide on it."""
    modes = [
        stream_mode(policy, model=model, domain=domain, tags=tags, team=team, key=key)
        for policy in policies
    ]
    return max(modes, key=lambda found: STRICTNESS.index(found.mode))
