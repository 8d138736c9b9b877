"""Labelled rows from answers, graded by rule or by the verdicts of judges (D01 to D03, C09)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrator.lab.data.benchmarks.registry import FORMATS
from calibrator.lab.data.benchmarks.tasks import Task
from calibrator.lab.data.grading.graders import Grade, grade, is_refusal
from calibrator.text.transcript import message_text

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """A model's answer to a task; `message` is the assistant message of a chat."""

    task: Task
    model: str
    message: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text for the reader, without reasoning, which may hold discarded answers."""
        content = self.message.get("content")
        if isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            return "".join(text for text in texts if isinstance(text, str))
        return content if isinstance(content, str) else ""

    @property
    def rule_grade(self) -> Grade | None:
        """The grade by rule, also of refusals and empty answers; None where a judge is needed."""
        if self.message.get("refusal") or (self.task.grader == "rubric" and is_refusal(self.text)):
            return Grade(False, "refusal")
        if self.task.grader == "rubric":
            return None if self.text.strip() else Grade(False, "empty")
        return grade(self.task.grader, self.text, self.task.gold)

    @property
    def id(self) -> str:
        """A digest of question, model and message, the same for the same answer."""
        text = "\0".join((self.task.question_id, self.model, message_text(self.message)))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:20]

    def row(self, verdicts: Mapping[str, bool | None]) -> Json | None:
        """Return the labelled row as a dict; None if a judge's verdict is missing.

        `verdicts` are the judges' by model, None without one; they count only where no rule
        decides, and the first is the label. The row has the question or messages,
        `response`, `model`, `correct` (0 or 1), `gold`, `graded_by` and `why`; `verdicts`
        are added if judges decided.
        """
        grade = self.rule_grade
        graded_by: str = self.task.grader
        if grade is None:
            judge, verdict = next(iter(verdicts.items()), ("", None))
            if verdict is None:
                return None
            grade = Grade(verdict, "same" if verdict else "other")
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
            "correct": int(grade.is_correct),
            "gold": list(self.task.gold),
            "answer_format": FORMATS[self.task.grader],
            "graded_by": graded_by,
            "why": grade.why,
        }
        labels = {judge: int(label) for judge, label in verdicts.items() if label is not None}
        return row | ({"verdicts": labels} if labels and self.rule_grade is None else {})

    def _response(self) -> Any:
        """Return the answer's text, or the message's set fields if it has more (tool calls)."""
        members = ("reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
        if any(self.message.get(name) for name in members):
            named = {name: self.message.get(name) for name in ("content", *members)}
            return {name: value for name, value in named.items() if value is not None}
        return self.text
