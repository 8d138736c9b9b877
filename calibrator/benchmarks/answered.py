"""From an answer to a labelled row: graded by rule, or by what judges said (D01 to D03, C09)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrator.benchmarks.registry import FORMATS
from calibrator.benchmarks.tasks import Task
from calibrator.grading.graders import Grade, grade, is_refusal
from calibrator.text.transcript import message_text

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model answered to a task: `message` is the assistant's, as chat has it."""

    task: Task
    model: str
    message: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What it says to the reader: no reasoning, which may hold answers that it gave up."""
        content = self.message.get("content")
        if isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            return "".join(text for text in texts if isinstance(text, str))
        return content if isinstance(content, str) else ""

    @property
    def rule_grade(self) -> Grade | None:
        """Its label where no model is needed: by rule, or because nothing was answered."""
        if self.message.get("refusal") or (self.task.grader == "rubric" and is_refusal(self.text)):
            return Grade(False, "refusal")
        if self.task.grader == "rubric":
            return None if self.text.strip() else Grade(False, "empty")
        return grade(self.task.grader, self.text, self.task.gold)

    @property
    def id(self) -> str:
        """The same for the same answer of the same model to the same question."""
        told = "\0".join((self.task.question_id, self.model, message_text(self.message)))
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:20]

    def row(self, verdicts: Mapping[str, bool | None]) -> Json | None:
        """The labelled row; None where no judge could be read.

        `verdicts` are those of judges by their model, the one whose label counts first.
        """
        found = self.rule_grade
        graded_by: str = self.task.grader
        if found is None:
            judge, verdict = next(iter(verdicts.items()), ("", None))
            if verdict is None:
                return None
            found = Grade(verdict, "same" if verdict else "other")
            graded_by = f"rubric, by {judge}"
        row: Json = {
            "id": self.id,
            "question_id": self.task.question_id,
            "benchmark": self.task.benchmark,
            "domain": self.task.domain,
        }
        if self.task.has_own_messages:
            row["messages"] = self.task.messages
        else:
            row["question"] = self.task.question
        if self.task.images:
            row["images"] = list(self.task.images)
        row |= {
            "response": self._response(),
            "model": self.model,
            "correct": int(found.is_correct),
            "gold": list(self.task.gold),
            "answer_format": FORMATS[self.task.grader],
            "graded_by": graded_by,
            "why": found.why,
        }
        told = {judge: int(said) for judge, said in verdicts.items() if said is not None}
        return row | ({"verdicts": told} if told and self.rule_grade is None else {})

    def _response(self) -> Any:
        """The text where there is no more to the message, else the message."""
        beside = ("reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
        if any(self.message.get(name) for name in beside):
            named = {name: self.message.get(name) for name in ("content", *beside)}
            return {name: value for name, value in named.items() if value is not None}
        return self.text
