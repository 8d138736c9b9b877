"""The pages of decision links in chats: one shows the reply, and a form decides.

Chats and mail scanners open links to look at them. So opening a link decides nothing and shows no
text of the reply; both the text and the decision take a form that a person sends. Whoever has the
link acts as the reviewer for whom it was made; it opens nothing else at the desk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from policies import plural
from proxy.config.settings.admin import LINKS
from proxy.config.settings.webhooks import WebhookConfig
from proxy.desk.access.guard import form_of, known_visitor
from proxy.desk.console.display import MOST_TURNS, show_turns
from proxy.desk.console.pages import render_page
from proxy.desk.console.reviews import LABELS, MOST_OF_A_NOTE, ReviewForm, check_look
from proxy.desk.decisions.desk import Desk, Verdict
from proxy.desk.decisions.waiting_calls import calls_in
from proxy.errors import BadRequestError, DecidedError, NotFoundError, ProxyError
from proxy.formats.conversation import read_reply, read_request
from proxy.optional.chat.links import DecisionLink, Signer
from proxy.store.queue import SEEN_QUEUES
from proxy.store.reviews.approvals import approved_by, has_approved, person_of, revision_of
from proxy.store.reviews.held_replies import EXPIRED, HELD, HeldReply
from proxy.store.reviews.used_links import found_use

log = structlog.get_logger(__name__)

VERDICTS: Final = ("approve", "reject")
_AT: Final = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, slots=True)
class LinkOutcome:
    """Why a link decides nothing now, or what it has decided; `outcome` is the metric's label."""

    outcome: str
    status: int
    title: str
    text: str


class LinkPages:
    """The pages of links.

    `webhooks` say who decides by links and in which queues. `on_end` is called with each outcome.
    """

    def __init__(
        self,
        desk: Desk,
        signer: Signer,
        webhooks: tuple[WebhookConfig, ...],
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._desk, self._signer, self._on_end = desk, signer, on_end
        self._queues = queues_of(webhooks)

    def routes(self) -> list[Route]:
        """Return the two routes of a link's page, GET and POST."""
        path = f"{LINKS}{{token}}"
        return [
            Route(path, self._answer_get, methods=["GET"]),
            Route(path, self._answer_post, methods=["POST"]),
        ]

    async def _answer_get(self, request: Request) -> Response:
        """Show the page of a link; a button pressed in the chat preselects the decision."""
        verdict = request.query_params.get("verdict", "")
        return await asyncio.to_thread(self._answer, request, {"wanted": verdict}, False)

    async def _answer_post(self, request: Request) -> Response:
        """Show the reply of a link, or decide by the submitted form."""
        return await asyncio.to_thread(self._answer, request, await form_of(request), True)

    def _answer(self, request: Request, fields: Mapping[str, str], is_sent: bool) -> Response:
        """Return the page for a link, or carry out the decision that a form holds."""
        link = self._signer.read(request.path_params["token"])
        try:
            reply = self._find_reply(request, link)
            if isinstance(reply, LinkOutcome):
                return self._outcome_page(reply, link)
            assert link is not None
            if not is_sent or "verdict" not in fields:
                return self._page(link, reply, fields, shows_content=is_sent)
            return self._decide_by_form(link, reply, fields)
        except ProxyError as error:
            title = "That did not work"
            return self._outcome_page(
                LinkOutcome("error", error.status, title, error.message), link
            )

    def _find_reply(self, request: Request, link: DecisionLink | None) -> HeldReply | LinkOutcome:
        """Return the reply on which a link may decide, or why it may not; raises StoreError."""
        if link is None:
            text = "It was changed on its way, or other secrets sign links by now."
            return LinkOutcome("altered", 403, "This link is not good", text)
        if (ending := self._reviewer_refusal(request, link)) is not None:
            return ending
        SEEN_QUEUES.set(self._queues[person_of(link.reviewer)])
        try:
            held = self._desk.find_reply(link.review_id)
        except NotFoundError:
            text = "It waits in another queue by now, or it is not kept any longer."
            return LinkOutcome("not_found", 404, "This reply is not yours to decide", text)
        return self._link_refusal(link, held) or held

    def _reviewer_refusal(self, request: Request, link: DecisionLink) -> LinkOutcome | None:
        """Return a refusal if the link's reviewer may not use it here, else None.

        That is a reviewer who is no longer configured, or a visitor who is signed in at the desk as
        somebody else.
        """
        if person_of(link.reviewer) not in self._queues:
            text = f"{link.reviewer} does not decide by links here any longer."
            return LinkOutcome("unknown_reviewer", 403, "This link is not good any longer", text)
        visitor = known_visitor(request)
        if visitor is None or person_of(visitor.name) == person_of(link.reviewer):
            return None
        text = f"You are signed in as {visitor.name}: decide at the desk, in your own name."
        return LinkOutcome("another_reviewer", 403, f"This link is for {link.reviewer}", text)

    def _link_refusal(self, link: DecisionLink, held: HeldReply) -> LinkOutcome | None:
        """Return a refusal if a link can decide nothing any more, else None.

        It was used, its reply is decided or was edited since, its time is over, or this reviewer
        has approved already.
        """
        use = found_use(self._desk.queue.engine, link.use)
        if use is not None:
            decision = "approved" if use.verdict == "approve" else "rejected"
            text = (
                f"You have {decision} the reply by it at {_time(use.used_at)}. A link decides once."
            )
            return LinkOutcome("used", 410, "This link was used", text)
        if held.state != HELD:
            text = f"It is {held.current_state}: nobody decided in time."
            if held.state != EXPIRED:
                text = f"{held.decided_by or 'Somebody'} has {held.state} it."
            return LinkOutcome("decided", 409, "This reply is decided already", text)
        if link.expires_at <= time.time():
            text = f"It held until {_time(link.expires_at)}. The reply still waits."
            return LinkOutcome("expired", 410, "This link has expired", text)
        if revision_of(held.proposed) != link.revision:
            by = approved_by(held.approved)[0]["by"]
            text = f"{by} has edited it since this link was made: read the edit, then decide."
            return LinkOutcome("edited", 409, "This reply was edited", text)
        if has_approved(held.approved, link.reviewer):
            text = "It waits for somebody else, who has to approve it too."
            return LinkOutcome("approved", 409, "You have approved this reply", text)
        return None

    # --- deciding -------------------------------------------------------------------------------

    def _decide_by_form(
        self, link: DecisionLink, held: HeldReply, fields: Mapping[str, str]
    ) -> Response:
        """Decide by a form, and return the page with the outcome."""
        try:
            verdict = _verdict_in(fields, held, link)
        except BadRequestError as error:
            return self._page(link, held, fields, shows_content=True, error=error.message)
        try:
            after = self._desk.decide(held.id, verdict, link.reviewer, link=link.use)
        except DecidedError:  # somebody was faster, perhaps with the same link
            ending = self._link_refusal(link, self._desk.find_reply(held.id))
            return self._outcome_page(
                ending or LinkOutcome("error", 409, "Nothing was decided", "Try again."), link
            )
        if verdict.verdict == "reject":
            ending = LinkOutcome("reject", 200, "Rejected", "The app is told so, with your note.")
        elif after["state"] == "open":
            missing = after["approvals"]["needed"] - len(after["approvals"]["given"])
            others = plural(missing, "more person has", "more people have")
            text = f"It waits until {others} approved it."
            ending = LinkOutcome("first", 200, "Approved by you", text)
        else:
            ending = LinkOutcome("approve", 200, "Approved", "The reply goes out.")
        return self._outcome_page(ending, link)

    # --- pages ----------------------------------------------------------------------------------

    def _outcome_page(self, ending: LinkOutcome, link: DecisionLink | None) -> Response:
        """Return the page with an outcome, which is logged and counted."""
        facts = {} if link is None else {"review_id": link.review_id, "reviewer": link.reviewer}
        event = "link_decided" if ending.status == 200 else "link_refused"
        (log.info if ending.status == 200 else log.warning)(event, outcome=ending.outcome, **facts)
        self._on_end(ending.outcome)
        desk = f"/console/reviews/{link.review_id}" if link else "/console/reviews"
        nothing: dict[str, Any] = {"conversation": [], "replies": []}
        return render_page(
            "outside/link.html",
            ending.status,
            title=ending.title,
            refusal=ending,
            desk=desk,
            **nothing,
        )

    def _page(
        self,
        link: DecisionLink,
        held: HeldReply,
        fields: Mapping[str, str],
        *,
        shows_content: bool,
        error: str | None = None,
    ) -> Response:
        """Return the page of a link that may decide.

        It has the facts and a button; once that is pressed, the reply and the form that decides.
        """
        path, facts = held.path, self._desk.entry_facts(held)
        calls = self._desk.calls(held)
        turns = read_request(held.request, path, held.question) if shows_content else []
        reply = read_reply(held.edit or held.reply, path) if shows_content else []
        first = max(0, len(turns) - MOST_TURNS)
        return render_page(
            "outside/link.html",
            200 if error is None else 400,
            title="A reply waits for your decision",
            refusal=None,
            desk=f"/console/reviews/{held.id}",
            path=f"{LINKS}{self._signer.token(link)}",
            reviewer=link.reviewer,
            item={**facts, "revision": revision_of(held.proposed)},
            until=min(held.expires_at, link.expires_at),
            wanted=fields.get("verdict") or fields.get("wanted", ""),
            form=ReviewForm(fields.get("correct", ""), fields.get("note", "")),
            opened=f"{time.time():.3f}",
            error=error,
            earlier=first,
            conversation=show_turns(turns[first:]),
            replies=show_turns(reply, calls=calls),
            calls=calls,
            doubts=self._desk.doubts.of(held)[1],
        )


def queues_of(webhooks: tuple[WebhookConfig, ...]) -> dict[str, frozenset[str] | None]:
    """Return the queues of each person who decides by links; None for all queues.

    Names are in the spelling of `person_of`.
    """
    found: dict[str, frozenset[str] | None] = {}
    for each in webhooks:
        if each.reviewer is None:
            continue
        person, queues = person_of(each.reviewer), frozenset(each.queues or ())
        before = found.get(person, frozenset())
        is_all = each.queues is None or before is None
        found[person] = None if is_all else queues | (before or frozenset())
    return found


def _verdict_in(fields: Mapping[str, str], held: HeldReply, link: DecisionLink) -> Verdict:
    """Return the decision in a form.

    Raises BadRequestError, also for a decision on a reply that was not shown.
    """
    kind, correct = fields["verdict"], fields.get("correct", "")
    calls = calls_in(held.edit or held.reply, held.path)
    if kind == "approve" and any(call.is_ambiguous for call in calls):
        raise BadRequestError("tools may read its arguments differently: decide at the desk")
    if kind not in VERDICTS or correct not in LABELS:
        raise BadRequestError("a verdict is approve or reject, and correct true or false")
    if "opened" not in fields:
        raise BadRequestError("look at the reply before you decide on it")
    note = fields.get("note", "").replace("\r\n", "\n").strip()
    if len(note) > MOST_OF_A_NOTE:
        raise BadRequestError(f"a note has at most {MOST_OF_A_NOTE} characters")
    check_look(held, fields)
    return Verdict(kind, LABELS[correct], None, note or None, link.revision)  # type: ignore[arg-type]


def _time(at: float) -> str:
    """Return a time in Unix seconds as `2026-01-31 12:00 UTC`."""
    return time.strftime(_AT, time.gmtime(at))
