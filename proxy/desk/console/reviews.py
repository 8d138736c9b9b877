"""The queue, and the page of one reply with the form that decides on it.

The form works without scripts. The page's script sends the same form some seconds later, so that a
decision can be undone before it has any effect.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from proxy.desk.access.guard import checked_form, visitor_of
from proxy.desk.access.sessions import Visitor
from proxy.desk.console.display import (
    MOST_TURNS,
    before_the_request,
    content_of,
    form_of,
    show_turns,
)
from proxy.desk.console.pages import SAFE, query
from proxy.desk.console.shell import page, with_error_pages
from proxy.desk.decisions.basis import in_words, mark_words, score_facts
from proxy.desk.decisions.desk import STATES, Desk, Verdict, approvals_of
from proxy.desk.decisions.editing import editable
from proxy.desk.decisions.standing import LikeThis, approval_json, end
from proxy.desk.decisions.unseen import one_line
from proxy.desk.decisions.waiting_calls import calls_in
from proxy.errors import BadRequestError, ProxyError
from proxy.formats.conversation import read_reply, read_request, tools_of
from proxy.store.reviews.approvals import approved_by, has_approved
from proxy.store.reviews.held_replies import AUDIT, HELD, OPEN, HeldReply, state_name, stored_state

FILTERS: Final = ("state", "queue", "team", "kind")
VERDICTS: Final = ("approve", "edit", "reject")
DONE: Final = {
    **dict(zip(VERDICTS, ("Approved.", "Sent as edited.", "Rejected."), strict=True)),
    "revoked": "Revoked. Calls like that one wait for a reviewer again.",
    "first": "Approved by you. It waits until others have approved it too.",
}
ON_EXPIRY: Final = {"reject": "rejected", "deliver": "delivered", "block": "blocked"}
OFF_THE_QUEUE: Final = "taken off the queue"  # for an audited reply, which was delivered already
LABELS: Final = {"true": True, "false": False, "": None}
MOST_OF_A_NOTE: Final = 2_000  # characters
PAUSE_S: Final = 1.0  # shortest time to read a reply before a decision; as in static/guard.js
MOST_EDITED: Final = 60_000  # bytes of a reply; browsers take seconds for a longer field
A_PAGE: Final = 50

CLAIM_S: Final = 60.0
MOST_CLAIMS: Final = 1_000  # the oldest go first


class ReviewForm(NamedTuple):
    """What a person wrote into the form; empty at first."""

    correct: str = ""
    note: str = ""
    is_edit: bool = False
    fields: Mapping[str, str] = {}


class _Claim(NamedTuple):
    """One person's claim: the reply's id, and its end on the clock."""

    id: str
    until: float


class Claims:
    """Who has a held reply open, so that two people do not do the same work; safe on any thread.

    Each person has one claim, on the page that they opened last. It lasts a minute and is renewed
    while the page stays open. It prevents nobody from deciding: others see it, and are sent to the
    next reply without one. Claims are in memory: they end with the desk of this proxy.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_name: dict[str, _Claim] = {}

    def take(self, id: str, name: str) -> str | None:
        """Claim a reply for a person for `CLAIM_S` seconds, and return None.

        If somebody else has it open, return their name and change nothing.
        """
        with self._lock:
            if (holder := self._holder(id, name)) is not None:
                return holder
            self._by_name.pop(name, None)
            self._by_name[name] = _Claim(id, self._clock() + CLAIM_S)
            while len(self._by_name) > MOST_CLAIMS:
                del self._by_name[next(iter(self._by_name))]
            return None

    def others(self, name: str) -> dict[str, str]:
        """Return the replies that other people have open: their names by the reply's id."""
        with self._lock:
            now = self._clock()
            claims = self._by_name.items()
            return {c.id: by for by, c in claims if c.until > now and by != name}

    def end(self, id: str) -> None:
        """Forget all claims on a reply, because it is decided."""
        with self._lock:
            for by in [by for by, claim in self._by_name.items() if claim.id == id]:
                del self._by_name[by]

    def _holder(self, id: str, name: str) -> str | None:
        """Return the name of somebody other than `name` who has a reply open, or None."""
        now = self._clock()
        holders = (
            by for by, claim in self._by_name.items() if claim.id == id and claim.until > now
        )
        return next((by for by in holders if by != name), None)


class Reviews:
    """The pages of one desk's queue and replies, and the claims on these."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._claims = Claims()

    def routes(self) -> list[Route]:
        """Return the routes of the pages and of their forms."""
        path = "/console/reviews/{id}"
        return [
            Route("/console/reviews", with_error_pages(self._desk, self._queue)),
            Route(path, with_error_pages(self._desk, self._review)),
            Route(f"{path}/next", with_error_pages(self._desk, self._next)),
            Route(f"{path}/claim", self._claim, methods=["POST"]),
            Route(f"{path}/verdict", self._verdict, methods=["POST"]),
            Route("/console/standing/{id}/revoke", self._revoke, methods=["POST"]),
        ]

    # --- the queue ------------------------------------------------------------------------------

    def _queue(self, request: Request) -> Response:
        """Return the page of the queue, filtered and cut as the query's parameters say."""
        filters = _filters(request)
        last_event = self._desk.queue.last_event()  # read first, so that no later event is missed
        entries = self._desk.page(
            filters["state"],
            queue=filters["queue"],
            team=filters["team"],
            kind=filters["kind"],
            limit=A_PAGE,
            after=request.query_params.get("after"),
        )
        claimed = self._claims.others(visitor_of(request).name)
        items = [
            {
                "id": each.id,
                "claimed_by": claimed.get(each.id),
                "confidence": each.confidence,
                "leaning": self._desk.leaning_of(each),
                "score": score_facts(each),
                "calls": self._desk.calls(each),
                "subject": one_line(each.question) or "(no text)",
                "kind": each.kind,
                "model": each.model,
                "team": each.team,
                "queue": each.queue,
                "created_at": each.created_at,
                "expires_at": each.expires_at,
                "decided_by": each.decided_by,
                "approvals": approvals_of(each),
            }
            for each in entries.items
        ]
        queues = {row["queue"] for row in self._desk.stats()["queues"]}
        queues |= {each.queue for each in entries.items}
        teams = {each.team for each in entries.items if each.team}
        if self._desk.setup is not None:
            teams |= set(self._desk.setup().config.teams)
        return page(
            self._desk,
            request,
            "reviews.html",
            "reviews",
            filters=filters,
            states=STATES,
            items=items,
            standing=[approval_json(each) for each in self._desk.queue.standing_approvals()],
            more=entries.next,
            queues=sorted(queues),
            teams=sorted(teams),
            done=DONE.get(request.query_params.get("done", "")),
            last_event=last_event,
        )

    # --- one reply ------------------------------------------------------------------------------

    def _review(self, request: Request) -> Response:
        """Return the page of the reply that the path names."""
        held = self._desk.find_reply(request.path_params["id"])
        return self._page_of(request, held, ReviewForm())

    def _page_of(
        self,
        request: Request,
        held: HeldReply,
        form: ReviewForm,
        error: str | None = None,
        status: int = 200,
    ) -> Response:
        """Return the page of a reply, with what was written into its form and an error, if any.

        It claims an open reply for the visitor.
        """
        facts = self._desk.review(held.id)
        path, is_all = held.path, "all" in request.query_params
        parts, calls = editable(held.as_proposed), self._desk.calls(held)
        is_large = len(held.reply) > MOST_EDITED
        turns = read_request(held.request, path, held.question)
        first = 0 if is_all else max(0, len(turns) - MOST_TURNS)
        claimed_by = None
        if held.state == HELD:
            claimed_by = self._claims.take(held.id, visitor_of(request).name)
        filters = _filters(request)
        return page(
            self._desk,
            request,
            "review.html",
            "reviews",
            status,
            item={
                **_item(held, facts),
                "leaning": self._desk.leaning_of(held),
            },
            filters=filters,
            claimed_by=claimed_by,
            all_path=request.scope["path"].removesuffix("/verdict") + "?all=1",
            is_all=is_all,
            opened=f"{time.time():.3f}",
            calls=calls,
            doubts=facts["doubts"],
            earlier=first,
            folded=before_the_request(turns[first:]),
            conversation=show_turns(turns[first:], is_all=is_all),
            replies=show_turns(
                read_reply(held.reply, path), is_all=is_all, calls=() if held.edit else calls
            ),
            revised=show_turns(read_reply(held.edit, path), calls=calls) if held.edit else [],
            tools=tools_of(held.request)[:50],
            editable=None if is_large else form_of(parts, form.fields),
            is_large=is_large,
            why=facts["why"] or [],
            like_this=facts["like_this"],
            rule=_rule(held),
            has_approved=has_approved(held.approved, visitor_of(request).name),
            labels=facts["labels"],
            history=facts["history"],
            form=form,
            error=error,
            done=DONE.get(request.query_params.get("done", "")),
        )

    # --- deciding -------------------------------------------------------------------------------

    async def _verdict(self, request: Request) -> Response:
        """Decide as the form says; a script gets JSON, and a form a redirect to the next reply.

        A form that is refused gets its own page again, with the error.
        """
        is_script = request.headers.get("accept", "").startswith("application/json")
        id, fields = request.path_params["id"], {}
        try:
            fields = await checked_form(request)
            done = await asyncio.to_thread(self._decide, id, fields, visitor_of(request))
        except ProxyError as error:
            if is_script:
                return JSONResponse(error.envelope(), error.status, SAFE)
            return await asyncio.to_thread(self._show_again, request, fields, error)
        if is_script:
            return JSONResponse({"verdict": fields["verdict"]}, headers=SAFE)
        name = visitor_of(request).name
        place = await asyncio.to_thread(self._place_after, id, _filters(request), name)
        return RedirectResponse(f"{place}&done={done}", 303)

    async def _claim(self, request: Request) -> Response:
        """Extend the visitor's claim on a reply, and answer in JSON with who else has it open.

        `claimed_by` is a name or null.
        """
        try:
            await checked_form(request)
            id, name = request.path_params["id"], visitor_of(request).name
            held = await asyncio.to_thread(self._desk.find_reply, id)
        except ProxyError as error:
            return JSONResponse(error.envelope(), error.status, SAFE)
        holder = self._claims.take(held.id, name) if held.state == HELD else None
        return JSONResponse({"claimed_by": holder}, headers=SAFE)

    async def _revoke(self, request: Request) -> Response:
        """Revoke a standing approval and redirect to the queue; an error is answered as JSON."""
        try:
            await checked_form(request)
            id, name = request.path_params["id"], visitor_of(request).name
            await asyncio.to_thread(end, self._desk.queue, id, name)
        except ProxyError as error:
            return JSONResponse(error.envelope(), error.status, SAFE)
        return RedirectResponse("/console/reviews?done=revoked", 303)

    def _decide(self, id: str, fields: Mapping[str, str], visitor: Visitor) -> str:
        """Decide as a form says, and return the key in DONE of the result.

        It ends the claims on the reply. "first" means that others have to approve too. Raises
        ProxyError.
        """
        verdict = self._read(id, fields)
        after = self._desk.decide(id, verdict, visitor.name, is_named=visitor.is_named)
        self._claims.end(id)
        return verdict.verdict if after["state"] != OPEN else "first"

    def _read(self, id: str, fields: Mapping[str, str]) -> Verdict:
        """Return the decision that a form states; raises ProxyError where it is invalid.

        An open reply must have been shown for `PAUSE_S`, see `check_look`.
        """
        kind, correct = fields.get("verdict"), fields.get("correct", "")
        if kind not in VERDICTS or correct not in LABELS:
            raise BadRequestError("a verdict is approve, edit or reject, and correct true or false")
        note = fields.get("note", "").replace("\r\n", "\n").strip()
        if len(note) > MOST_OF_A_NOTE:
            raise BadRequestError(f"a note has at most {MOST_OF_A_NOTE} characters")
        held = self._desk.find_reply(id)
        content = content_of(editable(held.as_proposed), fields) if kind == "edit" else None
        if held.state == HELD:
            check_look(held, fields)
        revision = fields.get("revision") or None
        like_this = _like_this(fields) if kind == "approve" else None
        return Verdict(kind, LABELS[correct], content, note or None, revision, like_this)  # type: ignore[arg-type]

    def _show_again(
        self, request: Request, fields: Mapping[str, str], error: ProxyError
    ) -> Response:
        """Return the reply's page again, with what was written and the error."""
        is_edit = fields.get("verdict") == "edit"
        form = ReviewForm(fields.get("correct", ""), fields.get("note", ""), is_edit, fields)

        def answer(request: Request) -> Response:
            held = self._desk.find_reply(request.path_params["id"])
            return self._page_of(request, held, form, error.message, error.status)

        return with_error_pages(self._desk, answer)(request)

    # --- the next one ---------------------------------------------------------------------------

    def _next(self, request: Request) -> Response:
        """Redirect to the next open reply after the one that the path names."""
        name = visitor_of(request).name
        place = self._place_after(request.path_params["id"], _filters(request), name)
        return RedirectResponse(place, 303)

    def _place_after(self, id: str, filters: Mapping[str, Any], name: str) -> str:
        """Return the address of the next open reply after `id` that nobody else has open.

        After the end of the queue the first one follows; without any, it is the queue's address.
        The filters are kept in its query.
        """
        queue_filters = {name: filters[name] for name in ("queue", "team", "kind")}
        held = self._desk.find_reply(id)
        at = held.confidence, held.created_at, held.id
        skipped = {id, *self._claims.others(name)}
        count = min(1 + len(skipped), A_PAGE)
        entries = self._desk.queue.page(HELD, count, at, **queue_filters)
        others = [each.id for each in entries if each.id not in skipped]
        if not others:
            entries = self._desk.queue.page(HELD, count, None, **queue_filters)
            others = [each.id for each in entries if each.id not in skipped]
        where = f"/console/reviews/{others[0]}" if others else "/console/reviews"
        return f"{where}?{query({**filters, 'state': None})}"


def check_look(held: HeldReply, fields: Mapping[str, str]) -> None:
    """Refuse a decision made within `PAUSE_S` after the page was opened; raises BadRequestError.

    An approved tool call has to be confirmed too. The page's script checks the same before; this is
    for pages without scripts.
    """
    try:
        viewed_s = time.time() - float(fields.get("opened", "0"))
    except ValueError as error:
        raise BadRequestError("the form has no time at which it was opened") from error
    if viewed_s < PAUSE_S:
        text = "that was within a second after this reply appeared: look at it, then decide"
        raise BadRequestError(text, code="decided_unseen")
    is_approved = fields.get("verdict") == "approve" and fields.get("confirmed") != "yes"
    if is_approved and calls_in(held.reply, held.path):
        text = "approving a call of a tool has to be confirmed: tick the box below the buttons"
        raise BadRequestError(text, param="confirmed", code="confirmation_missing")


def _like_this(fields: Mapping[str, str]) -> LikeThis | None:
    """Return the further calls that a form approves with a reply, or None if it asks for none.

    Raises BadRequestError where minutes or uses are no numbers.
    """
    if fields.get("like_this") != "yes":
        return None
    try:
        for_s, uses = float(fields.get("minutes", "")) * 60, int(fields.get("uses", ""))
    except ValueError as error:
        raise BadRequestError("minutes and uses are numbers", param="like_this") from error
    free = [name.removeprefix("any.") for name in fields if name.startswith("any.")]
    return LikeThis(for_s, uses, free)


def _filters(request: Request) -> dict[str, Any]:
    """Return the queue's filters in the query, by `FILTERS`; None for absent ones.

    `state` is always a public name, `open` by default.
    """
    filters = {name: request.query_params.get(name) or None for name in FILTERS}
    filters["state"] = state_name(stored_state(filters["state"] or "") or HELD)
    return filters


def _rule(held: HeldReply) -> dict[str, str]:
    """Split the label `policy/rule@digest` of a reply into `policy`, `name` and `digest`."""
    policy, _, rest = held.policy.partition("/")
    rule, _, digest = rest.rpartition("@")
    return {"policy": policy, "name": rule or rest, "digest": digest}


def _item(held: HeldReply, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name the facts of a reply that its page shows.

    `facts` is what `Desk.review` returns.
    """
    score = facts["score"]
    names = ("id", "kind", "queue", "team", "model", "confidence", "calibrator", "created_at")
    more = ("expires_at", "decided_at", "decided_by", "note", "share", "request_id", "is_bound")
    return {
        **{name: getattr(held, name) for name in names + more},
        "score": score,
        "based_on": in_words(basis) if (basis := score["basis"]) else None,
        "unsupported": [
            {"pieces": mark_words(each["sentence"], each["words"]), "kind": each["kind"]}
            for each in score["unsupported"] or ()
        ],
        "state": facts["state"],
        "path": facts["path"],
        "approvals": facts["approvals"],
        "is_first": held.quorum - len(approved_by(held.approved)) > 1,
        "escalation": facts["escalation"],
        "revision": facts["revision"],
        "is_audit": held.kind == AUDIT,
        "on_expiry": OFF_THE_QUEUE if held.kind == AUDIT else ON_EXPIRY[held.on_expiry],
    }
