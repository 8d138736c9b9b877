"""The parts of the proxy that handle completions, under one policy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from proxy.completions.decide import ActivePolicies
from proxy.completions.random_audit import Audit
from proxy.config.policy_book import PolicyBook
from proxy.config.sections import Config
from proxy.holds.conversations import Conversations
from proxy.holds.hold import Holds
from proxy.holds.ownership import Ownership, ownership_of
from proxy.holds.stream_results import Results
from proxy.holds.waiting import Verdicts
from proxy.http.wire.headers import POLICY
from proxy.http.wire.http import Request
from proxy.scoring.scores import Scores
from proxy.scoring.waits import Deadlines
from proxy.store.record.writer import Records
from proxy.store.reviews.held_replies import Store
from proxy.upstreams.router import Domains, Router


@dataclass(slots=True)
class Services:
    """The configuration in effect, and the objects that live as long as the proxy."""

    config: Config
    governing: ActivePolicies
    book: PolicyBook
    router: Router
    scoring: Scores
    store: Store
    results: Results
    verdicts: Verdicts
    records: Records | None = None
    conversations: Conversations = field(default_factory=Conversations)
    audit: Audit | None = None
    recordings: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    stream_waits: Deadlines = field(init=False)  # limit how long finish events wait for scores
    holding: Holds = field(init=False)
    ownership: Ownership = field(init=False)
    domains: Domains = field(init=False)
    may_take_long: bool = field(init=False)  # even if upstream's answer is complete
    max_body: int = field(init=False)  # bytes; copied because the configuration is slow to read
    tells_headers: bool = field(init=False)  # copied for the same reason
    attaches_member: bool = field(init=False)
    stricter: dict[str, Services] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.holding = Holds(self.governing.policies, self.store, self.conversations, self.verdicts)
        owned, is_enforced = self.conversations.owned, self.governing.is_enforced
        self.ownership = ownership_of(owned, self.store, self.config, is_enforced)
        self.domains = Domains(self.config, self.router)
        self.max_body = self.config.limits.max_body
        self.tells_headers = self.config.attach.headers
        self.attaches_member = self.config.attach.body
        self.stream_waits = Deadlines(self.config.limits.stream_wait_ms / 1_000)
        score_s, commit_s = self.config.calibrator.longest_s, self.config.limits.commit_after_s
        self.may_take_long = (
            self.governing.asks_again or self.holding.may_wait or score_s > commit_s
        )

    def with_requested_policy(self, request: Request) -> Services:
        """Return these services, with the policy that the request names deciding too.

        The header is `x-pinocchio-policy`; without it they are unchanged. Raises BadRequestError
        for a policy that no request may name.
        """
        if POLICY not in request.values:
            return self
        policy = self.book.requested_by(request.headers)
        if policy in self.governing.policies:
            return self
        if policy.name not in self.stricter:
            governing = self.governing.with_requested(policy)
            self.stricter[policy.name] = replace(self, governing=governing)
        return self.stricter[policy.name]
