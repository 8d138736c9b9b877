"""The desk's API under `/pinocchio/v1/`, for programs and for the console's script."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from proxy.desk.access.guard import stays, visitor_of
from proxy.desk.access.sessions import Visitor
from proxy.desk.desk import MOST_ON_A_PAGE, STATES, Desk, State, Verdict
from proxy.desk.notify.feed import Feed
from proxy.desk.standing import LikeThis, end, told
from proxy.learning.feedback import keep_feedback
from proxy.learning.second_opinions import read_second_opinions
from proxy.store.reviews.held_replies import state_name, stored_state
from proxy.wire.json_splice import dumps

Who = Annotated[Visitor, Depends(visitor_of)]
Id = Annotated[str, Path(description="Of a held reply, or of one drawn to be audited.")]
Narrowed = Annotated[str | None, Query(max_length=200)]
STATE = "`held` and `waits` are older names of `open`."
MOST_OF_A_NOTE = 10_000  # characters
Given = ParamSpec("Given")


class LikeThisBody(BaseModel):
    """Which calls are approved with the one that is decided on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    for_s: float = Field(gt=0, description="Seconds; at most `most_s` of the review's `like_this`.")
    uses: int = Field(gt=0, description="Calls; at most its `most_uses`.")
    any: list[str] = Field([], description="Arguments of any value; all others stay as they are.")


class VerdictBody(BaseModel):
    """A decision on one reply."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verdict: Literal["approve", "edit", "reject"]
    correct: bool | None = Field(None, description="The label of the reply; null keeps none.")
    content: Any = Field(None, description="Of an edit: the text, or the calls with arguments.")
    note: str | None = Field(None, max_length=MOST_OF_A_NOTE)
    revision: str | None = Field(
        None, description="The review's, where one of several reviewers has edited it before."
    )
    like_this: LikeThisBody | None = Field(
        None, description="Of an approval: it covers calls like this one too, for a while."
    )

    def verdict_given(self) -> Verdict:
        wish = self.like_this
        like_this = None if wish is None else LikeThis(wish.for_s, wish.uses, wish.any)
        told = self.verdict, self.correct, self.content, self.note, self.revision
        return Verdict(*told, like_this)


class LabelBody(BaseModel):
    """Whether a reply is correct, without a decision on it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    correct: bool
    note: str | None = Field(None, max_length=MOST_OF_A_NOTE)


def as_json(handler: Callable[Given, dict[str, Any]]) -> Callable[Given, Response]:
    """A handler whose value is told as JSON, whatever clients have written in it: half a surrogate
    pair, for one, which FastAPI takes for an error."""

    @wraps(handler)
    def answer(*args: Given.args, **kwargs: Given.kwargs) -> Response:
        return Response(dumps(handler(*args, **kwargs)), media_type="application/json")

    return answer


def review_routes(desk: Desk, feed: Feed) -> APIRouter:
    """Handlers are plain functions, which run on threads: all of them wait for the store."""
    api = APIRouter(prefix="/pinocchio/v1", tags=["reviews"])

    @api.get("/reviews")
    @as_json
    def reviews(
        state: Annotated[State | Literal["held", "waits"], Query(description=STATE)] = "open",
        queue: Narrowed = None,
        team: Narrowed = None,
        kind: Literal["hold", "audit"] | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE)] = 50,
        after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    ) -> dict[str, Any]:
        """Replies under review, most likely wrong first: lowest confidence, then oldest."""
        page = desk.page(_name(state), queue=queue, team=team, kind=kind, limit=limit, after=after)
        return {"items": [desk.listed(each) for each in page.items], "next": page.next}

    @api.get("/reviews/{id}")
    @as_json
    def review(id: Id) -> dict[str, Any]:
        """One reply with its request, what may be edited, why it was held, and what was said."""
        return desk.review(id)

    @api.post("/reviews/{id}/verdict")
    @as_json
    def verdict(id: Id, body: VerdictBody, who: Who) -> dict[str, Any]:
        """Decides, once, and answers with the review (but for `why`). The same again answers the
        same; another verdict is a 409 with the review, `review_decided` or `review_expired`.
        Where several people approve, the review stays open until the last; of a reply that one of
        them edits, the others approve its `revision`, else a 409 `review_edited`."""
        return desk.decide(id, body.verdict_given(), who.name, is_named=who.is_named)

    @api.post("/reviews/{id}/label")
    @as_json
    def label(id: Id, body: LabelBody, who: Who) -> dict[str, Any]:
        """Keeps this reviewer's label, whatever was decided."""
        return desk.label(id, body.correct, who.name, body.note)

    @api.get("/me")
    @as_json
    def me(who: Who) -> dict[str, Any]:
        """Who is at the desk, and in a session what `x-csrf-token` has to be."""
        return {"name": who.name, "role": who.role, "csrf": who.csrf}

    @api.get("/stats")
    @as_json
    def stats(who: Who) -> dict[str, Any]:
        """What waits, was decided in 30 days, is refused; for admins why, and webhooks."""
        return desk.stats() if who.is_admin else _for_reviewers(desk.stats())

    return _with_standing(_with_quality(_with_feedback(_with_events(api, feed), desk), desk), desk)


def _for_reviewers(stats: dict[str, Any]) -> dict[str, Any]:
    configuration = {**stats["configuration"], "problems": []}
    return {**stats, "configuration": configuration, "webhooks": {}}


def _with_events(api: APIRouter, feed: Feed) -> APIRouter:
    @api.get("/events", response_class=StreamingResponse)
    async def events(
        request: Request,
        heard: Annotated[int | None, Query(ge=0)] = None,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> StreamingResponse:
        """Server-sent events: `review` for each turn of a reply, `traffic` of the last minute every
        few seconds, `missed` for whoever reads too slowly.

        From now on, or from after the number `heard`; a reader that comes again says by
        `Last-Event-ID` where it was. It ends with the key or session that it was opened with.
        """
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        since = heard if last_event_id is None else last_event_id
        stream = await feed.watch(since, stays(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    return api


def _with_standing(api: APIRouter, desk: Desk) -> APIRouter:
    @api.get("/standing-approvals")
    @as_json
    def standing(
        all: Annotated[bool, Query(description="Also those that are over.")] = False,
    ) -> dict[str, Any]:
        """Approvals that cover further calls, the newest first."""
        return {"items": [told(each) for each in desk.queue.standing(is_all=all)]}

    @api.post("/standing-approvals/{id}/revoke")
    @as_json
    def revoke(id: Id, who: Who) -> dict[str, Any]:
        """Ends one at once; what it has let go is gone."""
        return end(desk.queue, id, who.name)

    return api


def _with_feedback(api: APIRouter, desk: Desk) -> APIRouter:
    @api.post("/feedback")
    @as_json
    def feedback(body: Annotated[Any, Body()], who: Who) -> dict[str, Any]:
        """Labels of any recorded replies, of the reviewer's own choice: `request_id`, `correct`,
        `note`, or a list of them as `feedback`. They are kept apart from verdicts."""
        return keep_feedback(desk.feedback, body, who.name)

    return api


def _with_quality(api: APIRouter, desk: Desk) -> APIRouter:
    @api.get("/quality/second-opinions")
    @as_json
    def opinions(
        days: Annotated[float, Query(gt=0, le=365, description="How far to look back.")] = 7,
        model: Narrowed = None,
        team: Narrowed = None,
    ) -> dict[str, Any]:
        """What second opinions came to, and by the verdicts what they were worth: the number that
        knows them beside the one of the reply alone. As the console's page on quality has it."""
        return read_second_opinions(desk.queue.engine, days, model, team).as_dict()

    return api


def _name(state: str) -> State:
    """Today's name of a state that may be spelt as it once was."""
    name = state_name(stored_state(state) or state)
    return next(each for each in STATES if each == name)
