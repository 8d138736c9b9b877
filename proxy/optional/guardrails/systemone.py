"""`POST /v1/systemone`, the contract of clients with a decision model: is the last reply correct?

    {"model": "pinocchio", "state": [{"role": "user", ..}, {"role": "assistant", ..}],
     "questions": {"correct": {"type": "noul", "instructions": "Is the reply correct?"}}}
    -> {"model": "embedded@3f2a", "answers": {"correct": {"type": "noul", "noul": 0.41}}}

The number is the confidence. Nothing is held, because the client decides. Questions are identified
by their names, `correct` and `incorrect`; their wording is not read. Any other question is refused,
so that no number is returned that means something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.errors import BadRequestError, NotScoredError
from proxy.exchange.outcome import Outcome, round_confidence
from proxy.formats import CHAT, Json
from proxy.http.wire.json_splice import json_object
from proxy.optional.guardrails.reading import object_in
from proxy.optional.guardrails.visits import Visit

PATH: Final = "/v1/systemone"
GATEWAY: Final = "systemone"
CORRECT, INCORRECT = "correct", "incorrect"
TYPE: Final = "noul"  # the protocol's type of a yes/no question
MOST_QUESTIONS: Final = 16
_CALLS: Final = ("tool_calls", "function_call")


def read(payload: Json) -> Visit:
    """Return the last reply of the conversation in `state`, with its request.

    Raises BadRequestError for other questions, and for a state without a reply.
    """
    _check_questions(object_in(payload, "questions") or {})
    state = payload.get("state")
    if isinstance(state, str):
        state = (json_object(f'{{"state":{state}}}') or {}).get("state", state)
    fields: Mapping[str, Any] = state if isinstance(state, dict) else {"messages": state}
    messages, reply = _parts(fields)
    request: Json = {"model": _model(fields), "messages": messages}
    if isinstance(fields.get("tools"), list):
        request["tools"] = fields["tools"]
    ending = "tool_calls" if any(reply.get(name) for name in _CALLS) else "stop"
    choices = [{"index": 0, "message": reply, "finish_reason": ending}]
    completion = {"object": "chat.completion", "model": request["model"], "choices": choices}
    return Visit(GATEWAY, CHAT, completion, request)


def answer(payload: Json, outcome: Outcome) -> Json:
    """Return the probability of yes for each question, in the service's form.

    `correct` gets the confidence and `incorrect` one minus it. Raises NotScoredError where the
    reply has no number.
    """
    if outcome.confidence is None:
        reason = outcome.reason or outcome.status.value
        raise NotScoredError(f"the reply has no number: {reason}", reason)
    probabilities = {CORRECT: outcome.confidence, INCORRECT: 1.0 - outcome.confidence}
    answers = {
        name: {"type": TYPE, TYPE: round_confidence(probabilities[name])}
        for name in payload["questions"]
    }
    return {"model": outcome.calibrator, "answers": answers}


def _check_questions(questions: Json) -> None:
    """Refuse other questions than `correct` and `incorrect`, none at all, and too many.

    Raises BadRequestError.
    """
    if not questions or len(questions) > MOST_QUESTIONS:
        raise BadRequestError("'questions' has to name a question", param="questions")
    for name, question in questions.items():
        is_known = name in (CORRECT, INCORRECT) and isinstance(question, dict)
        if not is_known or question.get("type") != TYPE:
            text = (
                f"the question {name[:60]!r} cannot be answered here: only 'correct' and "
                "'incorrect' are, of type noul, about the last reply"
            )
            raise BadRequestError(text, param="questions", code="unknown_question")


def _parts(fields: Mapping[str, Any]) -> tuple[list[Any], Json]:
    """Return the messages before the reply, and the reply as an assistant's message.

    Raises BadRequestError where the state does not end with a reply.
    """
    messages = fields.get("messages")
    if isinstance(fields.get("question"), str) and isinstance(fields.get("answer"), str):
        messages = [
            {"role": "user", "content": fields["question"]},
            {"role": "assistant", "content": fields["answer"]},
        ]
    items = messages if isinstance(messages, list) else []
    if len(items) < 2 or not _is_reply(items[-1]):
        text = (
            "'state' has to be a conversation that ends with the assistant's reply: a list of chat "
            "messages, an object with 'messages' (and 'tools'), or with 'question' and 'answer'"
        )
        raise BadRequestError(text, param="state", code="no_question")
    return items[:-1], dict(items[-1])


def _is_reply(message: Any) -> bool:
    """Return whether a value is a message of the role `assistant`."""
    return isinstance(message, dict) and message.get("role") == "assistant"


def _model(fields: Mapping[str, Any]) -> str:
    """Return the model that the state names, or `unknown`."""
    model = fields.get("model")
    return model if isinstance(model, str) and model else "unknown"
