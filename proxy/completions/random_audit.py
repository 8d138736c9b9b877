"""The random audit: a stated share of delivered replies is kept for a reviewer to label.

Held replies alone would show a calibrator only where it doubts. Chance alone decides which replies
are drawn, and no client can predict it; the share is kept with each, so that estimates can be
weighted by it. The reply is already on its way: a thread writes what is drawn.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from proxy.config.sections import Config
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome
from proxy.exchange.request import CompletionRequest
from proxy.gate.key_hash import hash_key
from proxy.holds.kept_scores import score_to_keep
from proxy.store.record.writer import DAY_S
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import AUDIT, HeldReply
from proxy.store.verdicts.labels import DELIVERED

PREFIX = "audit_"
QUEUE = "audit"
_draw = secrets.SystemRandom().random


class Audit:
    """Draws a `share` of the delivered replies, or a team's own share; `draw` returns 0 to 1."""

    def __init__(
        self,
        share: float,
        of_teams: Mapping[str, float],
        keep_s: float,
        writer: AuditWriter,
        draw: Callable[[], float] = _draw,
    ) -> None:
        self._share = share
        self._of_teams = of_teams
        self._keep_s = keep_s
        self._writer = writer
        self._draw = draw

    def consider(
        self,
        exchange: Exchange,
        request: CompletionRequest,
        outcome: Outcome,
        reply: Callable[[], bytes],
    ) -> None:
        """Draw a delivered reply by chance, and store it for review through the writer.

        The share is that of the caller's team or the general one; `reply` returns the bytes. Only
        scored replies with a single choice are drawn, because a reviewer's label does not name a
        choice.
        """
        team = exchange.request.caller.team
        share = self._of_teams.get(team, self._share) if team else self._share
        if self._draw() >= share or not _is_delivered(outcome):
            return
        now = time.time()
        self._writer.add(
            HeldReply(
                id=PREFIX + secrets.token_hex(16),
                key_hash=hash_key(exchange.request),
                queue=QUEUE,
                model=request.model,
                policy=outcome.decision.label if outcome.decision else "",
                confidence=outcome.confidence,
                calibrator=outcome.calibrator,
                question=request.format.last_question(request.payload),
                reply=reply(),
                created_at=now,
                expires_at=now + self._keep_s,
                kind=AUDIT,
                request_id=outcome.request_id,
                team=team,
                path=request.format.path,
                request=request.body,
                share=share,
                findings=score_to_keep(outcome),
            )
        )


def audit_of(config: Config, writer: AuditWriter) -> Audit | None:
    """Return the configured audit, which shows random replies to reviewers.

    None if the share of replies is 0 for all teams.
    """
    team_shares = {name: team.audit_share for name, team in config.teams.items()}
    of_teams = {name: share for name, share in team_shares.items() if share is not None}
    audit = config.audit
    if not audit.share and not any(of_teams.values()):
        return None
    return Audit(audit.share, of_teams, audit.keep_days * DAY_S, writer)


def _is_delivered(outcome: Outcome) -> bool:
    """Return whether a reply with one scored choice went out without a review."""
    return (
        outcome.confidence is not None
        and outcome.action in DELIVERED
        and outcome.review_id is None
        and len(outcome.facts) == 1
        and outcome.facts[0].n == 1
    )
