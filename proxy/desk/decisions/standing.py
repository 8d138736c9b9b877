"""Standing approvals: the further calls that a reviewer may approve together with a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.config.sections import LimitsConfig
from proxy.desk.decisions.waiting_calls import calls_in
from proxy.errors import BadRequestError, NotFoundError
from proxy.formats.responses.responses_items import has_server_calls
from proxy.http.wire.json_splice import json_object
from proxy.store.database.database import storable
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.held_replies import HOLD, HeldReply
from proxy.store.reviews.standing import StandingApproval, StandingRequest, pattern_of

MOST_USES = 100


@dataclass(frozen=True, slots=True)
class LikeThis:
    """The limits of an approval: seconds, uses, and the arguments that may have any value."""

    for_s: float
    uses: int
    any_of: Sequence[str] = ()


def coverable(held: HeldReply, limits: LimitsConfig) -> dict[str, Any] | None:
    """Return how far an approval of this reply may reach; None where it can cover no other call.

    The bounds are `most_s`, `most_uses`, the `tool`, and its `arguments` that may have any value.
    Covered are replies that a policy holds, with exactly one call of a client's own tool.
    """
    if limits.standing_s <= 0 or held.kind != HOLD or not held.reply or held.rule_digest is None:
        return None
    calls = calls_in(held.as_proposed.reply, held.path)
    if len(calls) != 1 or storable(calls[0].name) != calls[0].name:
        return None
    if has_server_calls(json_object(held.reply) or {}):
        return None
    arguments = list(calls[0].values or {})
    bounds = {"most_s": limits.standing_s, "most_uses": MOST_USES}
    return {**bounds, "tool": calls[0].name, "arguments": arguments}


def standing_for(held: HeldReply, like_this: LikeThis, limits: LimitsConfig) -> StandingRequest:
    """Return the standing approval that a reviewer wants, in the form that is stored.

    Raises BadRequestError where the reply can cover no call, or the bounds go beyond the limits.
    """
    calls = coverable(held, limits)
    if calls is None:
        text = (
            "no other call can be covered: it takes a reply with one call of a tool, held for a "
            "client that sent a key (not of a remote MCP server), and limits.standing_s above 0"
        )
        raise BadRequestError(text, param="like_this", code="not_coverable")
    if not 0 < like_this.for_s <= limits.standing_s or not 0 < like_this.uses <= MOST_USES:
        limits_text = f"{limits.standing_s:g} s (limits.standing_s) and {MOST_USES} uses"
        text = f"calls like this can be approved for more than nothing, and at most {limits_text}"
        raise BadRequestError(text, param="like_this", code="beyond_limits")
    [call] = calls_in(held.as_proposed.reply, held.path)
    try:
        pattern = pattern_of(call.arguments, like_this.any_of)
    except ValueError as error:
        raise BadRequestError(str(error), param="like_this", code="unknown_argument") from error
    return StandingRequest(call.name, pattern, like_this.for_s, like_this.uses)


def approval_json(approval: StandingApproval) -> dict[str, Any]:
    """Return a standing approval as JSON values, with the names of its call's arguments alone.

    `same` are those that must be equal, None if the whole text must; `any` may have any value.
    """
    names = ("id", "review_id", "queue", "tool", "created_at", "created_by", "expires_at")
    more = ("most_uses", "uses", "used_at", "revoked_at", "revoked_by", "state")
    pattern = json.loads(approval.arguments)
    return {
        **{name: getattr(approval, name) for name in names + more},
        "same": sorted(pattern.get("exact", {})) if "text" not in pattern else None,
        "any": pattern.get("any", []),
    }


def end(queue: ReviewQueue, id: str, by: str) -> dict[str, Any]:
    """Revoke a standing approval and return it as JSON values; a second call changes nothing.

    Raises NotFoundError where this reviewer sees none with this id.
    """
    if queue.standing_by_id(id) is not None:
        queue.revoke(id, by)  # a second call changes nothing
        if (approval := queue.standing_by_id(id)) is not None:
            return approval_json(approval)
    raise NotFoundError(f"there is no standing approval {id[:100]!r}", code="standing_not_found")
