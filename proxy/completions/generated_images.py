"""`/v1/images/generations`: generated images, scored as visual questions (R01).

If `calibrator.images.score_generated` is set, the calibrator is asked for each image of a reply
whether it depicts the prompt. The confidence is reported, but policies do not apply to these
replies. A reply that cannot be scored is relayed and labelled like those of other surfaces.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from calibrator import Question, depiction
from proxy.completions.services import Services
from proxy.completions.surfaces import Surfaces
from proxy.errors import UpstreamBrokenError
from proxy.exchange.answer import is_event_stream, unscorable_reason
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome
from proxy.formats import MEMBER, Choice, Json
from proxy.http.wire.encoding import decode_body
from proxy.http.wire.headers import DOMAIN, to_client, without
from proxy.http.wire.http import Reply, Request
from proxy.http.wire.json_splice import dumps, json_object, with_member
from proxy.http.wire.upstream import UpstreamReply
from proxy.scoring.scoring import Confidence, ScoreRequest, least_sure

PATH = "/v1/images/generations"


async def score_generated(services: Services, surfaces: Surfaces, request: Request) -> Reply:
    """Relay a request for images, and add the confidence of the least certain one to the reply.

    A reply that cannot be scored is relayed without. Raises ProxyError as a relay does, also for a
    reply that is too large to be read.
    """
    exchange = Exchange(request, surfaces.records)
    with exchange:
        payload = json_object(request.body) or {}
        exchange.model = payload["model"] if isinstance(payload.get("model"), str) else None
        reply = await surfaces.send(exchange, await surfaces.upstream_of(request))
        prompt = payload.get("prompt")
        if not isinstance(prompt, str) or unscorable_reason(reply) or is_event_stream(reply):
            return surfaces.label_unscored(exchange, reply)
        raw = await _read(services, exchange, reply)
        body = await _decode_body(raw, reply)
        images = _images((json_object(body) or {}).get("data"))
        if not images:
            return surfaces.label_unscored(exchange, reply, raw)
        began = time.perf_counter()
        confidences = await _confidences(services, request, prompt, images, exchange.model or "")
        exchange.scoring_s = time.perf_counter() - began
        outcome = exchange.finish(
            _outcome(exchange, confidences, services.scoring.name), reply.status
        )
        headers = to_client(reply.headers)
        if surfaces.attach.headers:
            headers = [*headers, *outcome.headers()]
        if not surfaces.attach.body:
            return Reply(reply.status, headers, raw)
        headers = without(headers, b"content-encoding", b"content-length")
        return Reply(reply.status, headers, with_member(body, MEMBER, dumps(outcome.member())))


async def _read(services: Services, exchange: Exchange, reply: UpstreamReply) -> bytes:
    """Read the body of a reply, at most `max_body` bytes, and close the reply.

    Raises UpstreamError where it is longer or breaks off.
    """
    try:
        with exchange.in_upstream:
            return await reply.read(services.max_body)
    finally:
        await reply.aclose()


async def _decode_body(raw: bytes, reply: UpstreamReply) -> bytes:
    """Return a body without its content encoding; empty if it is not validly encoded."""
    try:
        return await decode_body(raw, reply.header(b"content-encoding"))
    except UpstreamBrokenError:
        return b""


def _images(data: Any) -> list[Json]:
    """Return the images of a reply's `data` as content parts, with base64 data or their URL."""
    items = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    return [
        {"source": {"type": "base64", "media_type": "image/png", "data": encoded}}
        if (encoded := each.get("b64_json"))
        else {"image_url": each.get("url")}
        for each in items
    ]


async def _confidences(
    services: Services, request: Request, prompt: str, images: list[Json], model: str
) -> list[Confidence]:
    """Return one confidence for each image, in order: does it show what the prompt describes?

    `images` are content parts; they are scored concurrently.
    """
    text, answer = depiction(prompt)
    choice = Choice(0, {"role": "assistant", "content": answer})
    team = request.caller.team
    domain = services.domains.of_curve(model, team, request.header(DOMAIN))

    async def score(image: Json) -> Confidence:
        question = Question(text, [image])
        [confidence] = await services.scoring.score(
            ScoreRequest(lambda: question, [choice], model, domain, team)
        )
        return confidence

    return await asyncio.gather(*map(score, images))


def _outcome(exchange: Exchange, confidences: list[Confidence], calibrator: str | None) -> Outcome:
    """Return the outcome, with the confidence of the least certain image and no decision."""
    lowest = least_sure(confidences)
    outcome = exchange.unscored_outcome(lowest.status, "", calibrator)
    outcome.reason, outcome.confidence, outcome.score = lowest.reason, lowest.value, lowest.score
    if lowest.stand_in is not None:
        outcome.calibrator = lowest.stand_in.calibrator
    outcome.choices = [(Choice(at), confidence, None) for at, confidence in enumerate(confidences)]
    return outcome
