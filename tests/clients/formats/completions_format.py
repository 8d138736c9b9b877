"""Text completions, the oldest of OpenAI's APIs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.clients.formats.replies import CREATED, Event, Json, Reply, halves


def completion(body: Json, reply: Reply) -> Json:
    usage = {"prompt_tokens": 9, "completion_tokens": 10, "total_tokens": 19}
    return _object(body, reply.text, "stop") | {"usage": usage}


def events(body: Json, reply: Reply) -> Iterator[Event]:
    for text in halves(reply.text):
        yield Event(_object(body, text, None), is_delta=True)
    yield Event(_object(body, "", "stop"))
    yield Event("[DONE]")


def _object(body: Json, text: str, reason: str | None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return {
        "id": "cmpl-uqkvlQyYK7bGYrRHQ0eXlWi7",
        "object": "text_completion",
        "created": CREATED,
        "model": f"{body['model']}-2099",
        "choices": [choice],
        "system_fingerprint": "fp_44709d6fcb",
    }
