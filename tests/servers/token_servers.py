"""The scoring endpoints of vLLM and SGLang, as in their sources, around a tiny model.

They check requests as strictly as the real ones do (and refuse fields that these ignore), and build
and cut the prompt in the same way. They compute every position and the whole vocabulary, which is
simple and independent of the calibrator's own way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictInt

Ids = list[StrictInt]
LogProbs = Callable[[Sequence[int]], list[float]]


def log_probs_of(model: Any) -> LogProbs:
    """Return a function that computes the next token's log-probabilities over the vocabulary."""

    def log_probs(ids: Sequence[int]) -> list[float]:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
        found: list[float] = logits.float().log_softmax(-1).tolist()
        return found

    return log_probs


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GenerativeScoringRequest(Strict):
    model: str | None = None
    query: str | Ids
    items: list[str] | list[Ids]
    label_token_ids: Ids
    apply_softmax: bool = True
    item_first: bool = False
    add_special_tokens: bool = True


class ScoringRequest(Strict):
    query: str | Ids | None = None
    items: str | list[str] | list[Ids] | None = None
    label_token_ids: Ids | None = None
    apply_softmax: bool = False
    item_first: bool = False
    model: Annotated[str, Field()] = "default"


def error(status: int, message: str) -> JSONResponse:
    body = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    return JSONResponse({"error": body}, status)


def vllm_app(
    log_probs: LogProbs, model: str = "calibrator", *, key: str = "", max_model_len: int = 4_096
) -> FastAPI:
    """Serve as vLLM does, which silently cuts what is longer than `max_model_len`."""
    app = _app(model, key)

    @app.post("/generative_scoring")
    async def score(request: GenerativeScoringRequest) -> Any:
        if request.model not in (None, model):
            return error(404, f"The model `{request.model}` does not exist.")
        vocabulary = len(log_probs([0]))
        if not all(0 <= each < vocabulary for each in request.label_token_ids):
            return error(400, "label_token_id is out of vocabulary range")
        if not request.label_token_ids or not request.items:
            return error(400, "label_token_ids and items must contain at least one")
        data, read = [], 0
        for at, item in enumerate(request.items):
            assert isinstance(request.query, list)
            assert isinstance(item, list), "a test has no tokenizer here"
            parts = (item, request.query) if request.item_first else (request.query, item)
            ids = [*parts[0], *parts[1]][: max_model_len - 1]
            read += len(ids)
            value = _at_labels(log_probs(ids), request.label_token_ids, request.apply_softmax)[0]
            data.append({"index": at, "object": "score", "score": value})
        return {
            "id": "generative-scoring-1",
            "object": "list",
            "created": int(time.time()),
            "model": model,
            "data": data,
            "usage": {
                "prompt_tokens": read,
                "total_tokens": read + len(data),
                "completion_tokens": len(data),
                "prompt_tokens_details": None,
            },
        }

    return app


def sglang_app(
    log_probs: LogProbs, *, delimiter: int | None = None, tells_usage: bool = True
) -> FastAPI:
    """Serve as SGLang does; with a `delimiter` it scores the items of a request in one sequence."""
    app = _app("calibrator", "")

    @app.post("/v1/score")
    async def score(request: ScoringRequest) -> Any:
        if request.label_token_ids is None or request.items is None:
            return error(400, "label_token_ids is required for generation (CausalLM) models.")
        if not isinstance(request.query, list) or not isinstance(request.items, list):
            return error(400, "Invalid combination of query/items types for score_request.")
        labels, soft = request.label_token_ids, request.apply_softmax
        if delimiter is None:
            prompts = [[*request.query, *item] for item in request.items if isinstance(item, list)]
            read = sum(map(len, prompts))
        else:  # the label is looked for behind the delimiter that follows an item
            whole, prompts = [*request.query], []
            for item in request.items:
                assert isinstance(item, list)
                whole += [delimiter, *item]
                prompts.append([*whole, delimiter])
            read = len(whole) + 1
        return {
            "scores": [_at_labels(log_probs(ids), labels, soft) for ids in prompts],
            "model": request.model,
            "usage": {"prompt_tokens": read, "total_tokens": read} if tells_usage else None,
            "object": "scoring",
        }

    return app


def _app(model: str, key: str) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Any:
        if key and request.headers.get("authorization") != f"Bearer {key}":
            return JSONResponse({"error": "Unauthorized"}, 401)
        return await call_next(request)

    @app.get("/v1/models")
    async def models() -> Any:
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "x"}]}

    return app


def _at_labels(log_probs: list[float], labels: Sequence[int], apply_softmax: bool) -> list[float]:
    if any(not 0 <= label < len(log_probs) for label in labels):
        raise HTTPException(400, "Token ID is out of vocabulary")
    powers = [math.exp(log_probs[label]) for label in labels]
    return [power / sum(powers) for power in powers] if apply_softmax else powers
