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
from proxy.desk.decisions.desk import MOST_ON_A_PAGE, Desk, State, Verdict
from proxy.desk.decisions.standing import LikeThis, approval_json, end
from proxy.desk.feed import Feed
from proxy.http.wire.json_splice import dumps
from proxy.learning.feedback import keep_feedback
from proxy.learning.second_opinions import read_second_opinions

Who = Annotated[Visitor, Depends(visitor_of)]
Id = Annotated[str, Path(description="Of a held reply, or of one drawn to be audited.")]
Narrowed = Annotated[str | None, Query(max_length=200)]
MOST_OF_A_NOTE = 10_000  # characters
Given = ParamSpec("Given")


class LikeThisBody(BaseModel):
    """The further calls that are approved together with a reply."""

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

    def as_verdict(self) -> Verdict:
        """Return the body as a verdict for the desk."""
        body = self.like_this
        like_this = None if body is None else LikeThis(body.for_s, body.uses, body.any)
        fields = self.verdict, self.correct, self.content, self.note, self.revision
        return Verdict(*fields, like_this)


class LabelBody(BaseModel):
    """A label that says whether a reply is correct, without a decision on it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    correct: bool
    note: str | None = Field(None, max_length=MOST_OF_A_NOTE)


def as_json(handler: Callable[Given, dict[str, Any]]) -> Callable[Given, Response]:
    """Wrap a handler so that the dict it returns is sent as JSON, whatever clients wrote in it.

    FastAPI fails on some of it, such as half a surrogate pair.
    """

    @wraps(handler)
    def answer(*args: Given.args, **kwargs: Given.kwargs) -> Response:
        """Call the handler and serialize its value."""
        return Response(dumps(handler(*args, **kwargs)), media_type="application/json")

    return answer


def review_routes(desk: Desk, feed: Feed) -> APIRouter:
    """Return the router of the API; handlers run on threads, because they wait for the store."""
    api = APIRouter(prefix="/pinocchio/v1", tags=["reviews"])

    @api.get("/reviews")
    @as_json
    def reviews(
        state: Annotated[State, Query()] = "open",
        queue: Narrowed = None,
        team: Narrowed = None,
        kind: Literal["hold", "audit"] | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE)] = 50,
        after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    ) -> dict[str, Any]:
        """List replies under review, most likely wrong first: lowest confidence, then oldest."""
        page = desk.page(state, queue=queue, team=team, kind=kind, limit=limit, after=after)
        return {"items": [desk.entry_facts(each) for each in page.items], "next": page.next}

    @api.get("/reviews/{id}")
    @as_json
    def review(id: Id) -> dict[str, Any]:
        """Return a reply with its request, what may be edited, why it was held, and its labels."""
        return desk.review(id)

    @api.post("/reviews/{id}/verdict")
    @as_json
    def verdict(id: Id, body: VerdictBody, who: Who) -> dict[str, Any]:
        """Decide on a reply, once, and return the review (without `why`).

        The same decision again gets the same answer; another one is a 409 with the review,
        `review_decided` or `review_expired`. Where several people have to approve, the review stays
        open until the last of them does. If one of them edits the reply, the others approve its
        `revision`, or get a 409 `review_edited`.
        """
        return desk.decide(id, body.as_verdict(), who.name, is_named=who.is_named)

    @api.post("/reviews/{id}/label")
    @as_json
    def label(id: Id, body: LabelBody, who: Who) -> dict[str, Any]:
        """Keep this reviewer's label, whatever was decided."""
        return desk.label(id, body.correct, who.name, body.note)

    @api.get("/me")
    @as_json
    def me(who: Who) -> dict[str, Any]:
        """Return who is at the desk, and in a session the value that `x-csrf-token` must have."""
        return {"name": who.name, "role": who.role, "csrf": who.csrf}

    @api.get("/stats")
    @as_json
    def stats(who: Who) -> dict[str, Any]:
        """Return what waits, what was decided in 30 days, and whether the configuration is refused.

        Admins also see why it is refused, and the state of webhooks.
        """
        return desk.stats() if who.is_admin else _for_reviewers(desk.stats())

    return _with_standing(_with_quality(_with_feedback(_with_events(api, feed), desk), desk), desk)


def _for_reviewers(stats: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the stats without the configuration's problems and the webhooks."""
    configuration = {**stats["configuration"], "problems": []}
    return {**stats, "configuration": configuration, "webhooks": {}}


def _with_events(api: APIRouter, feed: Feed) -> APIRouter:
    """Add the route of the event stream to the API, and return the API."""

    @api.get("/events", response_class=StreamingResponse)
    async def events(
        request: Request,
        heard: Annotated[int | None, Query(ge=0)] = None,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> StreamingResponse:
        """Stream the desk's events as server-sent events.

        `review` is sent for each change of a reply, `traffic` of the last minute every few seconds,
        and `missed` to a client that reads too slowly. The stream begins now, or after the event
        number `heard`. A client that reconnects sends its last number as `Last-Event-ID`. The
        stream ends with the key or session that opened it.
        """
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        since = heard if last_event_id is None else last_event_id
        stream = await feed.watch(since, stays(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    return api


def _with_standing(api: APIRouter, desk: Desk) -> APIRouter:
    """Add the routes of standing approvals to the API, and return the API."""

    @api.get("/standing-approvals")
    @as_json
    def standing(
        all: Annotated[bool, Query(description="Also those that are over.")] = False,
    ) -> dict[str, Any]:
        """List approvals that cover further calls, the newest first."""
        return {
            "items": [approval_json(each) for each in desk.queue.standing_approvals(is_all=all)]
        }

    @api.post("/standing-approvals/{id}/revoke")
    @as_json
    def revoke(id: Id, who: Who) -> dict[str, Any]:
        """Revoke an approval at once; calls that it has already let through are not affected."""
        return end(desk.queue, id, who.name)

    return api


def _with_feedback(api: APIRouter, desk: Desk) -> APIRouter:
    """Add the route of volunteered feedback to the API, and return the API."""

    @api.post("/feedback")
    @as_json
    def feedback(body: Annotated[Any, Body()], who: Who) -> dict[str, Any]:
        """Keep labels of any recorded replies that the reviewer chose.

        The body has `request_id`, `correct` and `note`, or a list of these as `feedback`. The
        labels are kept apart from verdicts.
        """
        return keep_feedback(desk.feedback, body, who.name)

    return api


def _with_quality(api: APIRouter, desk: Desk) -> APIRouter:
    """Add the route about second opinions to the API, and return the API."""

    @api.get("/quality/second-opinions")
    @as_json
    def opinions(
        days: Annotated[float, Query(gt=0, le=365, description="How far to look back.")] = 7,
        model: Narrowed = None,
        team: Narrowed = None,
    ) -> dict[str, Any]:
        """Return what second opinions said, and how much they were worth by the verdicts.

        The confidence with them is beside the confidence of the reply alone. The console's page on
        quality shows the same.
        """
        return read_second_opinions(desk.queue.engine, days, model, team).as_dict()

    return api
