"""Labelled rows for policies: the calibrator's rows, scored where they have no confidence yet."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrator import (
    CallNotes,
    Progress,
    Row,
    RowError,
    Score,
    basis_with,
    cache_scores,
    call_notes,
    check_readable,
    load_labelled,
    load_scorer,
    provenance,
    reads_images,
    score_items,
)
from policies import Exchange, Facts, LabelledScore, facts_from_values
from proxy.formats.events.called import add_notes, tool_calls

UNRECORDED = frozenset({"stream", "team", "key", "tags", "n", "finish_reason"})
"""Facts that a labelled row does not have, unless it carries them under `facts`.

Calls of tools and a refusal are part of a response: one of plain text has neither.
"""
FINDINGS = ("support", "basis", "act", "needs_facts", "familiar")
"""Facts that come with a score made here, or that a row carries beside its confidence."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A labelled row with its confidence, and the version of the calibrator that gave it."""

    row: Row
    confidence: float
    calibrator: str | None
    score: Score | None = None  # None where the row had a confidence
    alone_calibrator: str | None = None  # the calibrator of the confidence without others

    @property
    def is_correct(self) -> bool:
        return bool(self.row.correct)

    def as_label(self) -> LabelledScore:
        """Return the row as a label of a certificate."""
        id = self.row.raw.get("id") or hashlib.sha256(self.row.answer.encode()).hexdigest()
        return LabelledScore(self.row.question_id, self.confidence, self.is_correct, str(id))

    def exchange(self) -> Exchange:
        """Return the row as an exchange to replay.

        `facts` of the row replace those of its response.
        """
        raw = self.row.raw
        at_s = raw.get("at_s") if isinstance(raw.get("at_s"), int | float) else None
        source, findings = f"row {raw.get('id', self.row.question_id)}", self._findings()
        if isinstance(raw.get("facts"), dict):
            score = {"confidence": self.confidence, "calibrator": self.calibrator}
            values = {**findings, **raw["facts"], **score}
            return Exchange(facts_from_values(values, source), self.is_correct, at_s)
        message = _message(raw["response"])
        facts = Facts(
            self.confidence,
            self.row.model or "",
            tools=add_notes(tool_calls(message), self._notes(message)),
            refusal=bool(message.get("refusal")),
            domain=self.row.domain,
            length=len(self.row.answer),
            calibrator=self.calibrator,
        )
        row_facts = facts_from_values({"model": facts.model or "none", **findings}, source)
        facts.support, facts.basis, facts.act = row_facts.support, row_facts.basis, row_facts.act
        facts.needs_facts, facts.familiar = row_facts.needs_facts, row_facts.familiar
        if self.score is not None and self.score.alone is not None:
            facts.alone, facts.opinions = self.score.alone, self.score.compared
            facts.alone_calibrator = self.alone_calibrator
        lacks = UNRECORDED if facts.basis else UNRECORDED.union(FINDINGS)
        if any(call.marks is None for call in facts.tools):
            lacks |= {"marks"}
        return Exchange(facts, self.is_correct, at_s, lacks)

    def _notes(self, message: Mapping[str, Any]) -> tuple[CallNotes, ...] | None:
        """Return the marks and risks of the row's calls, from its score or computed now.

        Return None for a reply without calls.
        """
        if self.score is not None and self.score.notes is not None:
            return self.score.notes
        tool_use = self.row.item("served").tool_use
        return call_notes(tool_use) if tool_use is not None and tool_use.has_calls else None

    def _findings(self) -> dict[str, Any]:
        """Return the findings besides the confidence, under their names in a record."""
        if (score := self.score) is None:
            raw = self.row.raw
            return {name: raw[name] for name in FINDINGS if raw.get(name) is not None}
        return {
            "support": score.support,
            "basis": [*basis_with(score.basis)],
            "act": score.act,
            "needs_facts": score.needs_facts,
            "familiar": not score.is_unfamiliar,
        }


def load_scored(paths: Sequence[Path], calibrator: str) -> tuple[list[ScoredRow], list[RowError]]:
    """Read labelled rows, and score those without a `confidence` as the proxy would.

    Returns them in their order, and the errors of unusable rows. Raises CalibratorError, also for
    files without a labelled row.
    """
    check_readable(paths)
    rows, bad = load_labelled(paths, "read")
    scored: dict[int, ScoredRow] = {}
    unscored = []
    for index, row in enumerate(rows):
        confidence = row.raw.get("confidence")
        if confidence is None:
            unscored.append(index)
        elif isinstance(confidence, bool) or not isinstance(confidence, int | float):
            bad.append(row.error(f"'confidence' must be a number, not {confidence!r}"))
        elif not 0 <= confidence <= 1:
            bad.append(row.error(f"'confidence' must be from 0 to 1, not {confidence!r}"))
        else:
            name = row.raw.get("calibrator")
            known = name if isinstance(name, str) else None
            scored[index] = ScoredRow(row, float(confidence), known)
    if unscored:
        scorer = cache_scores(load_scorer(calibrator), "auto")
        if not reads_images(scorer):
            text = "the question has an image; this calibrator reads text only"
            bad += [rows[index].error(text) for index in unscored if rows[index].images]
            unscored = [index for index in unscored if not rows[index].images]
        items = [rows[index].item("served") for index in unscored]
        with Progress("scoring", len(items)) as progress:
            scores = score_items(scorer, items, progress.advance)
        for index, score in zip(unscored, scores, strict=True):
            scored[index] = ScoredRow(
                rows[index], score.confidence, provenance(scorer, score), score, scorer.name
            )
    return [scored[index] for index in sorted(scored)], bad


def _message(response: Any) -> dict[str, Any]:
    """Return the message of a row's response, whole completions included; {} for plain text."""
    if not isinstance(response, dict):
        return {}
    choices = response.get("choices")
    message = choices[0].get("message") if isinstance(choices, list) and choices else response
    return message if isinstance(message, dict) else {}
