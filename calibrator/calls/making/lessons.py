"""What the calibrator for calls learns from: graded calls, corruptions of right ones, scenes.

Rows of benchmarks in which calls are written as text are read as calls too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calibrator.calls.making.changes import KINDS
from calibrator.calls.making.contraries import COMMAND, commands
from calibrator.calls.making.corruptions import OTHER_REQUEST, other_request
from calibrator.calls.making.disguises import SUSPICIOUS, planted
from calibrator.calls.making.domains import DOMAINS, Domain
from calibrator.calls.making.drafts import Draft, changed
from calibrator.calls.making.worlds import scenes
from calibrator.features.checks import made_calls, offered_tools
from calibrator.rows.rows import Row
from calibrator.scorer import ToolUse

LEVELS = {"call": 1.0, "turn": 0.7, "run": 0.4}  # how much a label of this level counts
NOISY = {"BFCL-live": 0.6}  # how much a wrong row counts where many such labels are doubtful
IRRELEVANT = "BFCL-irrelevance"  # right there means that no call was found in the text
GRADED, WRITTEN, CORRUPTED, SUSPECT, SCENE = "graded", "written", "corrupted", "suspect", "scene"
PLANTED_SHARE = 0.15  # of wrong lessons are had with planted values too
COMMAND_SHARE = 0.2  # of scenes, beside them: commands and queries
COMMAND_WEIGHT = 3.0  # of each beside other scenes
OTHER_SHARE = 0.15  # of right calls are put behind another request


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reply with its label; `origin` is how it came about, `group` its benchmark or domain."""

    used: ToolUse
    correct: int
    origin: str
    group: str
    kind: str = ""  # of corruption, variant or twist
    weight: float = 1.0
    name: str = ""  # of the answering model
    question: str = ""  # the same for all that was made from replies to one question


def lessons_of(
    rows: Sequence[Row],
    seed: int,
    *,
    scene_count: int = 4_000,
    faults: int = 2,
    domains: tuple[Domain, ...] = DOMAINS,
) -> list[Lesson]:
    """All that is learnt from: graded rows, `faults` corruptions of each right one, scenes."""
    graded = [lesson for row in rows if (lesson := lesson_of(row)) is not None]
    made = [
        Lesson(
            s.used,
            s.correct,
            SCENE,
            s.domain,
            s.twist,
            COMMAND_WEIGHT ** (s.twist == COMMAND),
            question=s.group,
        )
        for s in (
            *scenes(scene_count, seed, domains),
            *commands(round(scene_count * COMMAND_SHARE), seed),
        )
    ]
    changed_ones = [*_changed(graded, seed, faults), *_changed(made, seed + 1, 1)]
    told = [*graded, *made, *changed_ones]
    return [*told, *_planted(told, seed)]


def lesson_of(row: Row) -> Lesson | None:
    """A graded row as a lesson; None for one without a label or a call."""
    if row.correct is None:
        return None
    used, origin = row.tool_use, GRADED
    if used is None or not used.has_calls:
        used, origin = written_calls(row), WRITTEN
    if used is None or (row.benchmark == IRRELEVANT and row.correct == 1):
        return None
    weight = LEVELS.get(str(row.raw.get("label_level")), 1.0)
    if row.correct == 0:
        weight *= NOISY.get(row.benchmark or "", 1.0)
    named = (row.model or "", row.question_id)
    return Lesson(used, row.correct, origin, row.benchmark or "", "", weight, *named)


def written_calls(row: Row) -> ToolUse | None:
    """The calls of a reply that writes them as text, where the question lists the functions."""
    request, sign, _ = row.question.partition("Available functions (JSON):")
    offered = offered_tools(row.question) if sign else {}
    made = made_calls(row.answer) if offered else []
    if not any(name in offered for name, _ in made):
        return None
    calls = [
        {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in made
    ]
    tools = [{"function": {**tool, "name": name}} for name, tool in offered.items()]
    said = request.strip().removeprefix("User request:").strip()
    return ToolUse(
        [{"role": "user", "content": said}], tools, {"content": None, "tool_calls": calls}
    )


def _changed(lessons: Sequence[Lesson], seed: int, faults: int) -> Iterator[Lesson]:
    """Of each right lesson some wrong variants, and of every other one a right one."""
    right = [lesson for lesson in lessons if lesson.correct == 1]
    alike: dict[str, list[Lesson]] = {}
    for lesson in right:
        alike.setdefault(lesson.group, []).append(lesson)
    for number, lesson in enumerate(right):
        rng = random.Random(f"change {seed} {number}")
        for kind, used in _some(lesson, KINDS, faults, rng):
            yield replace(lesson, used=used, correct=0, origin=CORRUPTED, kind=kind, weight=1.0)
        if rng.random() < OTHER_SHARE:
            others = [rng.choice(alike[lesson.group]).used for _ in range(10)]
            if (elsewhere := other_request(lesson.used, others, rng)) is not None:
                yield replace(lesson, used=elsewhere, correct=0, origin=CORRUPTED,
                              kind=OTHER_REQUEST, weight=1.0)  # fmt: skip
        for kind, used in _some(lesson, SUSPICIOUS, 1, rng):
            yield replace(lesson, used=used, origin=SUSPECT, kind=kind)


def _planted(lessons: Sequence[Lesson], seed: int) -> Iterator[Lesson]:
    """Some wrong lessons with the values of their calls repeated where these mean nothing."""
    for number, lesson in enumerate(lessons):
        rng = random.Random(f"plant {seed} {number}")
        if lesson.correct == 0 and rng.random() < PLANTED_SHARE:
            used = changed(lesson.used, planted, rng)
            if used is not None:
                kind = planted.__name__
                yield replace(lesson, used=used, origin=CORRUPTED, kind=kind, weight=1.0)


def _some(
    lesson: Lesson, kinds: Mapping[str, Callable[[Draft], bool]], count: int, rng: random.Random
) -> Iterator[tuple[str, ToolUse]]:
    """The first changes of a random order that can be made."""
    order = sorted(kinds)
    rng.shuffle(order)
    for kind in order:
        if count == 0:
            return
        used = changed(lesson.used, kinds[kind], rng)
        if used is not None:
            count -= 1
            yield kind, used
