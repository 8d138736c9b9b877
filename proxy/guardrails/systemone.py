"""`POST /v1/systemone`, as whoever has a decision model asks: is the last reply correct?

    {"model": "pinocchio", "state": [{"role": "user", ..}, {"role": "assistant", ..}],
     "questions": {"correct": {"type": "noul", "instructions": "Is the reply correct?"}}}
    -> {"model": "embedded@3f2a", "answers": {"correct": {"type": "noul", "noul": 0.41}}}

The number is the confidence; nothing is held, for whoever asks decides. Questions are known by
their names, `correct` and `incorrect`: how they are worded is not read, and any other question is
refused rather than answered with a number that means something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.errors import BadRequestError, NotScoredError
from proxy.exchange.outcome import Outcome, shown
from proxy.formats import CHAT, Json
from proxy.guardrails.reading import object_in
from proxy.guardrails.visits import Visit
from proxy.wire.json_splice import json_object

PATH: Final = "/v1/systemone"
GATEWAY: Final = "systemone"
CORRECT, INCORRECT = "correct", "incorrect"
TYPE: Final = "noul"  # the protocol's word for a yes/no question
MOST_QUESTIONS: Final = 16
_CALLS: Final = ("tool_calls", "function_call")


def read(payload: Json) -> Visit:
    """The conversation and its last reply; raises BadRequestError for anything else."""
    _check_questions(object_in(payload, "questions") or {})
    state = payload.get("state")
    if isinstance(state, str):
        state = (json_object(f'{{"state":{state}}}') or {}).get("state", state)
    told: Mapping[str, Any] = state if isinstance(state, dict) else {"messages": state}
    messages, reply = _parts(told)
    asked: Json = {"model": _model(told), "messages": messages}
    if isinstance(told.get("tools"), list):
        asked["tools"] = told["tools"]
    ending = "tool_calls" if any(reply.get(name) for name in _CALLS) else "stop"
    choices = [{"index": 0, "message": reply, "finish_reason": ending}]
    completion = {"object": "chat.completion", "model": asked["model"], "choices": choices}
    return Visit(GATEWAY, CHAT, completion, asked)


def answer(payload: Json, outcome: Outcome) -> Json:
    """P(yes) of each question; raises NotScoredError where there is no number."""
    if outcome.confidence is None:
        reason = outcome.reason or outcome.status.value
        raise NotScoredError(f"the reply has no number: {reason}", reason)
    sure = {CORRECT: outcome.confidence, INCORRECT: 1.0 - outcome.confidence}
    answers = {name: {"type": TYPE, TYPE: shown(sure[name])} for name in payload["questions"]}
    return {"model": outcome.calibrator, "answers": answers}


def _check_questions(questions: Json) -> None:
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


def _parts(told: Mapping[str, Any]) -> tuple[list[Any], Json]:
    """The messages before the reply, and the reply as a message of the assistant's."""
    messages = told.get("messages")
    if isinstance(told.get("question"), str) and isinstance(told.get("answer"), str):
        messages = [
            {"role": "user", "content": told["question"]},
            {"role": "assistant", "content": told["answer"]},
        ]
    listed = messages if isinstance(messages, list) else []
    if len(listed) < 2 or not _is_reply(listed[-1]):
        text = (
            "'state' has to be a conversation that ends with the assistant's reply: a list of chat "
            "messages, an object with 'messages' (and 'tools'), or with 'question' and 'answer'"
        )
        raise BadRequestError(text, param="state", code="no_question")
    return listed[:-1], dict(listed[-1])


def _is_reply(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _model(told: Mapping[str, Any]) -> str:
    """The model that answered, where the state tells it."""
    model = told.get("model")
    return model if isinstance(model, str) and model else "unknown"
