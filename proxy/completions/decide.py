"""Decisions of several policies on one request: the strictest one applies.

The first policy is the caller's; a client may request a second one, which can only cause more of
its replies to wait or to be withheld.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from policies import (
    Decision,
    Facts,
    Policy,
    StreamMode,
    after_escalation,
    asks_a_model,
    decide,
    stream_mode,
    strictest,
    with_requested,
)
from proxy.errors import BadRequestError
from proxy.exchange.request import DECISIVE, CompletionRequest
from proxy.http.wire.bounded_cache import LONGEST
from proxy.learning.traffic import Traffic

STRICTNESS: Final = ("passthrough", "buffer_tools", "buffer")
_PASSTHROUGH: Final = StreamMode("passthrough")


class ActivePolicies:
    """Policies that decide together, with everything that depends on them alone."""

    def __init__(
        self,
        policies: tuple[Policy, ...],
        traffic: Traffic,
        route_of: Callable[[str], str] = str,
        requested_policy: Policy | None = None,
    ) -> None:
        """Combine the policies.

        `route_of` returns the configuration's route for a model's name; `requested_policy` is the
        last of the policies, if a client has requested it.
        """
        self.policies = policies
        self._traffic = traffic
        self._route_of = route_of
        self._requested_policy = requested_policy
        enforced = [policy for policy in policies if policy.is_enforced]
        self.is_enforced = bool(enforced)
        goes_by_model = any("model" in policy.looks_at for policy in enforced)
        self.decisive = (DECISIVE if goes_by_model else DECISIVE - {"model"}) if enforced else ()
        self.asking = next((each.ask for each in enforced if each.ask is not None), None)
        self.second_opinion = next(
            (each.second_opinion for each in enforced if each.second_opinion is not None), None
        )
        self.judge = next((each.judge for each in enforced if each.judge is not None), None)
        self.counts_logprobs = any(each.logprobs for each in enforced)
        asks_others = self.second_opinion is not None or self.judge is not None
        self.asks_again = asks_others or any(
            asks_a_model(action)
            for policy in enforced
            for action in (*(rule.then for rule in policy.rules), policy.default)
        )
        self.decide: Callable[[Facts], Decision] = partial(decide, policies[0])
        if len(policies) > 1 or policies[0].follows_traffic:
            self.decide = self._decide_together
        self._mode_of = lru_cache(maxsize=1_024)(partial(_strictest_mode, policies))

    def with_requested(self, policy: Policy) -> ActivePolicies:
        """Return these policies together with one that a request names.

        Raises BadRequestError for a policy that calls further models, because that is not stricter.
        """
        if (policy.ask, policy.second_opinion, policy.judge) != (None, None, None):
            raise BadRequestError(
                f"policy {policy.name!r} asks further models, which no request can ask for",
                code="unusable_policy",
            )
        return ActivePolicies((*self.policies, policy), self._traffic, self._route_of, policy)

    def _together(self, decisions: Iterable[Decision]) -> Decision:
        """Return the strictest decision, with that of a policy that the request named, if any.

        That policy's decision is the last one.
        """
        if self._requested_policy is None:
            return strictest(decisions)
        *own, requested = decisions
        return with_requested(strictest(own), requested)

    def _decide_together(self, facts: Facts) -> Decision:
        return self._together(decide(self._now(policy, facts), facts) for policy in self.policies)

    def after_escalation(self, decision: Decision, facts: Facts) -> Decision:
        """Decide on a reply that an escalation kept; `decision` is the one that escalated."""
        return self._together(
            after_escalation(self._now(policy, facts, is_new=False), decision, facts)
            for policy in self.policies
        )

    def _now(self, policy: Policy, facts: Facts, *, is_new: bool = True) -> Policy:
        """Return the policy with thresholds and counts of the current traffic filled in.

        Unchanged if it has no such conditions. With `is_new`, this reply is counted too.
        """
        if not policy.follows_traffic:
            return policy
        route = self._route_of(facts.model)
        return self._traffic.policy_for(policy, facts, route, is_new=is_new)

    def stream_mode(self, request: CompletionRequest) -> StreamMode:
        """Return how much of a request's stream must be buffered for the enforced policies.

        For example `passthrough` without any, `buffer` for the whole answer, `buffer_tools` for
        calls.
        """
        if not self.is_enforced:
            return _PASSTHROUGH
        caller = request.caller
        chosen = (request.model, request.domain or "", *request.tags)  # chosen by the client
        is_short = sum(map(len, chosen)) <= LONGEST
        return (self._mode_of if is_short else self._mode_of.__wrapped__)(
            model=request.model,
            domain=request.domain,
            tags=request.tags,
            team=caller.team,
            key=caller.key,
            n=1 if self.asking is None else request.format.count(request.payload),
        )


def _strictest_mode(policies: Sequence[Policy], **of_request: Any) -> StreamMode:
    modes = [stream_mode(policy, **of_request) for policy in policies]
    return max(modes, key=lambda mode: STRICTNESS.index(mode.mode))
