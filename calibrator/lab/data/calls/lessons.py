"""The training data of the calibrator for calls: graded calls, corruptions of right ones, scenes.

Rows of benchmarks in which calls are written as text are read as calls too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calibrator.features.checks import made_calls, offered_tools
from calibrator.lab.data.calls.changes import KINDS
from calibrator.lab.data.calls.contraries import COMMAND, commands
from calibrator.lab.data.calls.corruptions import OTHER_REQUEST, other_request
from calibrator.lab.data.calls.disguises import SUSPICIOUS, plant_values
from calibrator.lab.data.calls.domains import DOMAINS, Domain
from calibrator.lab.data.calls.drafts import Draft, apply_change
from calibrator.lab.data.calls.worlds import scenes
from calibrator.rows.rows import Row
from calibrator.scorer import ToolUse

LEVELS = {"call": 1.0, "turn": 0.7, "run": 0.4}  # weight of a label by its level
NOISY = {"BFCL-live": 0.6}  # weight of wrong rows of benchmarks with many doubtful labels
IRRELEVANT = "BFCL-irrelevance"  # a right row has no call in its text
GRADED, WRITTEN, CORRUPTED, SUSPECT, SCENE = "graded", "written", "corrupted", "suspect", "scene"
PLANTED_SHARE = 0.15  # share of wrong lessons repeated with planted values
COMMAND_SHARE = 0.2  # number of commands and queries, as a share of the scenes
COMMAND_WEIGHT = 3.0  # weight of a command beside other scenes
OTHER_SHARE = 0.15  # share of right calls put after another request


@dataclass(frozen=True, slots=True)
class CallLesson:
    """A reply with its label; `origin` is the way it was made, `group` its benchmark or domain."""

    used: ToolUse
    correct: int
    origin: str
    group: str
    kind: str = ""  # kind of corruption, variant or twist
    weight: float = 1.0
    name: str = ""  # name of the answering model
    question: str = ""  # equal for all lessons made from replies to one question


def lessons_of(
    rows: Sequence[Row],
    seed: int,
    *,
    scene_count: int = 4_000,
    faults: int = 2,
    domains: tuple[Domain, ...] = DOMAINS,
) -> list[CallLesson]:
    """Return training examples of calls: from graded rows, from synthetic scenes, and variants.

    Scenes are `scene_count` of `domains` and 20 % as many of shell commands and SQL. Each right
    graded row gets up to `faults` wrong variants, each right scene up to one; one right variant
    of each looks suspicious. 15 % of wrong ones are repeated with their values planted in the
    conversation.
    """
    graded = [lesson for row in rows if (lesson := lesson_of(row)) is not None]
    synthetic = [
        CallLesson(
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
    changed_ones = [
        *_change_lessons(graded, seed, faults),
        *_change_lessons(synthetic, seed + 1, 1),
    ]
    unplanted = [*graded, *synthetic, *changed_ones]
    return [*unplanted, *_plant_lessons(unplanted, seed)]


def lesson_of(row: Row) -> CallLesson | None:
    """Return a graded row as a training example; None without a label or a call.

    Calls that are written as text are read as calls too. Right rows of the irrelevance
    benchmark are None. The weight falls for labels of whole turns or runs, and for wrong rows
    of noisy benchmarks.
    """
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
    return CallLesson(used, row.correct, origin, row.benchmark or "", "", weight, *named)


def written_calls(row: Row) -> ToolUse | None:
    """Parse the calls that a reply writes as text, such as `f(x=1)`, into a ToolUse.

    The question must end in `Available functions (JSON): ..`; the text before is the user's
    message. Returns None if it does not, or if the reply calls none of these functions.
    """
    text, sign, _ = row.question.partition("Available functions (JSON):")
    offered = offered_tools(row.question) if sign else {}
    written = made_calls(row.answer) if offered else []
    if not any(name in offered for name, _ in written):
        return None
    calls = [
        {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in written
    ]
    tools = [{"function": {**tool, "name": name}} for name, tool in offered.items()]
    request = text.strip().removeprefix("User request:").strip()
    return ToolUse(
        [{"role": "user", "content": request}], tools, {"content": None, "tool_calls": calls}
    )


def _change_lessons(lessons: Sequence[CallLesson], seed: int, faults: int) -> Iterator[CallLesson]:
    """Yield variants of each right lesson: up to `faults` wrong ones, and one right but suspicious.

    15 % also yield a wrong one whose call follows the request of another lesson of the same
    group. Wrong lessons have no variants.
    """
    right = [lesson for lesson in lessons if lesson.correct == 1]
    alike: dict[str, list[CallLesson]] = {}
    for lesson in right:
        alike.setdefault(lesson.group, []).append(lesson)
    for number, lesson in enumerate(right):
        rng = random.Random(f"change {seed} {number}")
        for kind, used in _some_changes(lesson, KINDS, faults, rng):
            yield replace(lesson, used=used, correct=0, origin=CORRUPTED, kind=kind, weight=1.0)
        if rng.random() < OTHER_SHARE:
            others = [rng.choice(alike[lesson.group]).used for _ in range(10)]
            if (elsewhere := other_request(lesson.used, others, rng)) is not None:
                yield replace(lesson, used=elsewhere, correct=0, origin=CORRUPTED,
                              kind=OTHER_REQUEST, weight=1.0)  # fmt: skip
        for kind, used in _some_changes(lesson, SUSPICIOUS, 1, rng):
            yield replace(lesson, used=used, origin=SUSPECT, kind=kind)


def _plant_lessons(lessons: Sequence[CallLesson], seed: int) -> Iterator[CallLesson]:
    """Yield 15 % of the wrong lessons again, with values of the call written into the conversation.

    They stay wrong: the values are put where they have no meaning, such as `see also K17`.
    """
    for number, lesson in enumerate(lessons):
        rng = random.Random(f"plant {seed} {number}")
        if lesson.correct == 0 and rng.random() < PLANTED_SHARE:
            used = apply_change(lesson.used, plant_values, rng)
            if used is not None:
                yield replace(lesson, used=used, origin=CORRUPTED, kind="planted", weight=1.0)


def _some_changes(
    lesson: CallLesson, kinds: Mapping[str, Callable[[Draft], bool]], count: int, rng: random.Random
) -> Iterator[tuple[str, ToolUse]]:
    """Yield (kind, changed reply) for up to `count` kinds that apply, tried in random order."""
    order = sorted(kinds)
    rng.shuffle(order)
    for kind in order:
        if count == 0:
            return
        used = apply_change(lesson.used, kinds[kind], rng)
        if used is not None:
            count -= 1
            yield kind, used
