"""Scores for tools, by a calibrator of this process that the first call loads."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrator import CalibratorError, Pinocchio
from proxy.scoring.engines.findings import findings_of, findings_values

DIGITS = 4
MOST_CHARACTERS = 1_000_000  # of the texts of one call

Json = dict[str, Any]


class UnscorableError(Exception):
    """There is no score; a sentence why, for the client."""


class ScoringTools:
    """Scores by `checkpoint`, which the first call loads."""

    def __init__(self, checkpoint: str, device: str, recalibration: Sequence[Path]) -> None:
        self._checkpoint, self._device = checkpoint, device
        self._recalibration = recalibration
        self._loaded: Pinocchio | None = None
        self._lock = threading.Lock()

    def reply(
        self,
        reply: str,
        question: str | None = None,
        messages: list[Json] | None = None,
        model: str | None = None,
    ) -> Json:
        """Score a reply: return its probability of being correct, with the findings.

        The question is `question` or the last one in `messages`; `model` names the reply's author.
        Raises UnscorableError without a question, or where the reply gets no number.
        """
        return self._score_reply(reply, question, messages, None, model)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        question: str | None = None,
        messages: list[Json] | None = None,
        tools: list[Json] | None = None,
        model: str | None = None,
    ) -> Json:
        """Return the probability that a call is correct, with findings; raises UnscorableError."""
        function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return self._score_reply(message, question, messages, tools, model)

    def _score_reply(
        self,
        response: str | Json,
        question: str | None,
        messages: list[Json] | None,
        tools: list[Json] | None,
        model: str | None,
    ) -> Json:
        """Return confidence, calibrator and findings for a reply or a message with calls.

        Raises UnscorableError without a question, for more than MOST_CHARACTERS, and where it
        cannot be scored.
        """
        if not (question or messages):
            text = "give `question`, or the conversation as `messages`: a reply alone has no number"
            raise UnscorableError(text)
        size = len(json.dumps([response, question, messages, tools]))
        if size > MOST_CHARACTERS:
            raise UnscorableError(f"{size} characters are more than {MOST_CHARACTERS}")
        conversation = messages if messages else [{"role": "user", "content": question}]
        try:
            with self._lock:
                judge = self._calibrator()
                score = judge.assess(
                    response, messages=conversation, tools=tools, source_model=model
                )
        except (CalibratorError, ValueError) as error:
            raise UnscorableError(str(error)) from error
        answer: Json = {"confidence": round(score.confidence, DIGITS), "calibrator": judge.name}
        if score.because:
            answer["because"] = list(score.because)
        return answer | findings_values(findings_of(score))

    def _calibrator(self) -> Pinocchio:
        """Return the calibrator, loaded at the first call."""
        if self._loaded is None:
            recalibration = list(self._recalibration) or None
            self._loaded = Pinocchio(
                self._checkpoint, device=self._device, recalibration=recalibration
            )
        return self._loaded
