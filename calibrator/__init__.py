"""Text in, probability out: the calibrator, with no HTTP and no policy.

What other packages use stands here; names that need numpy or torch are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibrator.batching import Batcher, Ticket, score_tickets
from calibrator.errors import (
    CalibratorError,
    CheckpointError,
    HubError,
    JudgingError,
    MissingExtraError,
    NotScorableError,
    OutputError,
    QueueFullError,
    RowError,
    TrainingError,
    UnavailableError,
)
from calibrator.scorer import (
    ACTS,
    BASES,
    CALLS,
    CONTEXT,
    IN_WORDS,
    LIKENESS,
    LOGPROBS,
    NO_SIGNALS,
    OPINIONS,
    WITH_OTHERS,
    FakeScorer,
    FieldDoubt,
    Item,
    OtherReply,
    Score,
    Scorer,
    Signals,
    ToolUse,
    Unsupported,
    basis_with,
    knows_others,
    knows_signals,
    opinion_of,
    provenance,
    reads_images,
    reads_tool_use,
    without_others,
    without_signals,
)
from calibrator.text.replies import answer_message, blocks_message, is_call, is_tool_use, tool_call
from calibrator.text.transcript import (
    AFTER_CHARACTERS,
    HISTORY_CHARACTERS,
    Question,
    depiction,
    message_text,
    read_question,
)

if TYPE_CHECKING:
    from calibrator.baselines.asked_judge import judge_prompt, judged_in
    from calibrator.baselines.stated import stated_in, stated_prompt
    from calibrator.benchmarks.answered import Answered
    from calibrator.benchmarks.registry import Benchmark, known_benchmarks
    from calibrator.benchmarks.splits import CollectedSplit, split_collected
    from calibrator.benchmarks.tasks import Task, load_tasks
    from calibrator.calls.reasons import call_doubts
    from calibrator.commands.app import cli
    from calibrator.commands.progress import Progress
    from calibrator.commands.recalibrate import recalibrate
    from calibrator.commands.terminal import ROWS_HELP, check_target, file_option, refuse, writer
    from calibrator.grading.rubric import rubric_messages, verdict_in
    from calibrator.installing import install_command
    from calibrator.llm.exporting import export_weights
    from calibrator.llm.serving.token_prompts import (
        TokenPrompts,
        load_token_prompts,
        name_elsewhere,
    )
    from calibrator.loading import (
        check_checkpoint,
        check_device,
        checkpoint_card,
        load_scorer,
        version_of,
    )
    from calibrator.metrics.agreement import Agreement, Label, agreement_of
    from calibrator.metrics.gains import Gain, gains
    from calibrator.metrics.intervals import Interval, auroc_interval, holds_chance
    from calibrator.metrics.sampling import Stratum, estimated_share, wilson
    from calibrator.pinocchio import Pinocchio
    from calibrator.recalibration.curves import By, Kind, Of, Recalibration, group_key
    from calibrator.recalibration.fit import Observed, fit_observed
    from calibrator.recalibration.signals import (
        LabelledSignals,
        SignalWeights,
        fit_signals,
        weighed,
    )
    from calibrator.recalibration.trial import Trial, compared, fixed, trial, unseen
    from calibrator.recalibration.versions import (
        Recalibrations,
        RecalibrationVersions,
        recalibration_files,
        resolve_recalibrations,
        versions_named,
    )
    from calibrator.rows.copies import copies_in
    from calibrator.rows.files import check_readable
    from calibrator.rows.kept_scores import keeping
    from calibrator.rows.rows import Row, open_lines
    from calibrator.rows.scores import score_items
    from calibrator.rows.selection import load_labelled
    from calibrator.text.images import IMAGE_REASONS, ImageLimits, checked_image, locate_images
    from calibrator.tuning.fine_tuning import TunableCheckpoint, check_output
    from calibrator.tuning.last_layer import Read, Readings
    from calibrator.tuning.trial import TUNING_STEPS, TuningTrial, try_tuning
    from calibrator.workflows.workflow_tables import workflow_report
    from calibrator.workflows.workflows import Outcome

_LAZY = {
    "Agreement": "calibrator.metrics.agreement",
    "Answered": "calibrator.benchmarks.answered",
    "Benchmark": "calibrator.benchmarks.registry",
    "By": "calibrator.recalibration.curves",
    "CollectedSplit": "calibrator.benchmarks.splits",
    "Gain": "calibrator.metrics.gains",
    "IMAGE_REASONS": "calibrator.text.images",
    "ImageLimits": "calibrator.text.images",
    "Interval": "calibrator.metrics.intervals",
    "Kind": "calibrator.recalibration.curves",
    "Label": "calibrator.metrics.agreement",
    "LabelledSignals": "calibrator.recalibration.signals",
    "Observed": "calibrator.recalibration.fit",
    "Of": "calibrator.recalibration.curves",
    "Outcome": "calibrator.workflows.workflows",
    "Pinocchio": "calibrator.pinocchio",
    "Progress": "calibrator.commands.progress",
    "ROWS_HELP": "calibrator.commands.terminal",
    "Read": "calibrator.tuning.last_layer",
    "Readings": "calibrator.tuning.last_layer",
    "Recalibration": "calibrator.recalibration.curves",
    "RecalibrationVersions": "calibrator.recalibration.versions",
    "Recalibrations": "calibrator.recalibration.versions",
    "Row": "calibrator.rows.rows",
    "SignalWeights": "calibrator.recalibration.signals",
    "Stratum": "calibrator.metrics.sampling",
    "TUNING_STEPS": "calibrator.tuning.trial",
    "Task": "calibrator.benchmarks.tasks",
    "TokenPrompts": "calibrator.llm.serving.token_prompts",
    "Trial": "calibrator.recalibration.trial",
    "TunableCheckpoint": "calibrator.tuning.fine_tuning",
    "TuningTrial": "calibrator.tuning.trial",
    "agreement_of": "calibrator.metrics.agreement",
    "auroc_interval": "calibrator.metrics.intervals",
    "call_doubts": "calibrator.calls.reasons",
    "check_checkpoint": "calibrator.loading",
    "check_device": "calibrator.loading",
    "check_output": "calibrator.tuning.fine_tuning",
    "check_readable": "calibrator.rows.files",
    "check_target": "calibrator.commands.terminal",
    "checked_image": "calibrator.text.images",
    "checkpoint_card": "calibrator.loading",
    "cli": "calibrator.commands.app",
    "compared": "calibrator.recalibration.trial",
    "estimated_share": "calibrator.metrics.sampling",
    "export_weights": "calibrator.llm.exporting",
    "file_option": "calibrator.commands.terminal",
    "fit_observed": "calibrator.recalibration.fit",
    "fit_signals": "calibrator.recalibration.signals",
    "fixed": "calibrator.recalibration.trial",
    "gains": "calibrator.metrics.gains",
    "group_key": "calibrator.recalibration.curves",
    "copies_in": "calibrator.rows.copies",
    "holds_chance": "calibrator.metrics.intervals",
    "install_command": "calibrator.installing",
    "judge_prompt": "calibrator.baselines.asked_judge",
    "judged_in": "calibrator.baselines.asked_judge",
    "keeping": "calibrator.rows.kept_scores",
    "known_benchmarks": "calibrator.benchmarks.registry",
    "load_labelled": "calibrator.rows.selection",
    "load_scorer": "calibrator.loading",
    "load_tasks": "calibrator.benchmarks.tasks",
    "load_token_prompts": "calibrator.llm.serving.token_prompts",
    "locate_images": "calibrator.text.images",
    "name_elsewhere": "calibrator.llm.serving.token_prompts",
    "open_lines": "calibrator.rows.rows",
    "recalibrate": "calibrator.commands.recalibrate",
    "recalibration_files": "calibrator.recalibration.versions",
    "refuse": "calibrator.commands.terminal",
    "resolve_recalibrations": "calibrator.recalibration.versions",
    "rubric_messages": "calibrator.grading.rubric",
    "score_items": "calibrator.rows.scores",
    "split_collected": "calibrator.benchmarks.splits",
    "stated_in": "calibrator.baselines.stated",
    "stated_prompt": "calibrator.baselines.stated",
    "trial": "calibrator.recalibration.trial",
    "try_tuning": "calibrator.tuning.trial",
    "unseen": "calibrator.recalibration.trial",
    "verdict_in": "calibrator.grading.rubric",
    "version_of": "calibrator.loading",
    "versions_named": "calibrator.recalibration.versions",
    "weighed": "calibrator.recalibration.signals",
    "wilson": "calibrator.metrics.sampling",
    "workflow_report": "calibrator.workflows.workflow_tables",
    "writer": "calibrator.commands.terminal",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ACTS",
    "AFTER_CHARACTERS",
    "BASES",
    "CALLS",
    "CONTEXT",
    "HISTORY_CHARACTERS",
    "IMAGE_REASONS",
    "IN_WORDS",
    "LIKENESS",
    "LOGPROBS",
    "NO_SIGNALS",
    "OPINIONS",
    "ROWS_HELP",
    "TUNING_STEPS",
    "WITH_OTHERS",
    "Agreement",
    "Answered",
    "Batcher",
    "Benchmark",
    "By",
    "CalibratorError",
    "CheckpointError",
    "CollectedSplit",
    "FakeScorer",
    "FieldDoubt",
    "Gain",
    "HubError",
    "ImageLimits",
    "Interval",
    "Item",
    "JudgingError",
    "Kind",
    "Label",
    "LabelledSignals",
    "MissingExtraError",
    "NotScorableError",
    "Observed",
    "Of",
    "OtherReply",
    "Outcome",
    "OutputError",
    "Pinocchio",
    "Progress",
    "Question",
    "QueueFullError",
    "Read",
    "Readings",
    "Recalibration",
    "RecalibrationVersions",
    "Recalibrations",
    "Row",
    "RowError",
    "Score",
    "Scorer",
    "SignalWeights",
    "Signals",
    "Stratum",
    "Task",
    "Ticket",
    "TokenPrompts",
    "ToolUse",
    "TrainingError",
    "Trial",
    "TunableCheckpoint",
    "TuningTrial",
    "UnavailableError",
    "Unsupported",
    "agreement_of",
    "answer_message",
    "auroc_interval",
    "basis_with",
    "blocks_message",
    "call_doubts",
    "check_checkpoint",
    "check_device",
    "check_output",
    "check_readable",
    "check_target",
    "checked_image",
    "checkpoint_card",
    "cli",
    "compared",
    "copies_in",
    "depiction",
    "estimated_share",
    "export_weights",
    "file_option",
    "fit_observed",
    "fit_signals",
    "fixed",
    "gains",
    "group_key",
    "holds_chance",
    "install_command",
    "is_call",
    "is_tool_use",
    "judge_prompt",
    "judged_in",
    "keeping",
    "known_benchmarks",
    "knows_others",
    "knows_signals",
    "load_labelled",
    "load_scorer",
    "load_tasks",
    "load_token_prompts",
    "locate_images",
    "message_text",
    "name_elsewhere",
    "open_lines",
    "opinion_of",
    "provenance",
    "read_question",
    "reads_images",
    "reads_tool_use",
    "recalibrate",
    "recalibration_files",
    "refuse",
    "resolve_recalibrations",
    "rubric_messages",
    "score_items",
    "score_tickets",
    "split_collected",
    "stated_in",
    "stated_prompt",
    "tool_call",
    "trial",
    "try_tuning",
    "unseen",
    "verdict_in",
    "version_of",
    "versions_named",
    "weighed",
    "wilson",
    "without_others",
    "without_signals",
    "workflow_report",
    "writer",
]
