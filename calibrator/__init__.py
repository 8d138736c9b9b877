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
from calibrator.replies import answer_message, blocks_message, is_call, is_tool_use, tool_call
from calibrator.scorer import (
    FakeScorer,
    Item,
    Score,
    Scorer,
    ToolUse,
    reads_images,
    reads_tool_use,
)
from calibrator.transcript import (
    AFTER_CHARACTERS,
    HISTORY_CHARACTERS,
    Question,
    depiction,
    message_text,
    read_question,
)

if TYPE_CHECKING:
    from calibrator.agreement import Agreement, Label, agreement_of
    from calibrator.calls.reasons import call_doubts
    from calibrator.commands import cli
    from calibrator.console import ROWS_HELP, check_readable, check_target, file_option, writer
    from calibrator.fine_tuning import Read, TunableCheckpoint, check_output
    from calibrator.images import IMAGE_REASONS, ImageLimits, checked_image, locate_images
    from calibrator.installing import install_command
    from calibrator.intervals import Interval, auroc_interval, holds_chance
    from calibrator.judge import Pinocchio
    from calibrator.kept_scores import keeping
    from calibrator.llm.elsewhere import TokenPrompts, load_token_prompts, name_elsewhere
    from calibrator.llm.exporting import export_weights
    from calibrator.loading import (
        check_checkpoint,
        check_device,
        checkpoint_card,
        load_scorer,
        version_of,
    )
    from calibrator.progress import Progress
    from calibrator.recalibrate_command import recalibrate
    from calibrator.recalibration import By, Kind, Recalibration, group_key
    from calibrator.recalibration_fit import Observed, fit_observed
    from calibrator.recalibration_trial import Trial, trial
    from calibrator.recalibration_versions import RecalibrationVersions, resolve_recalibration
    from calibrator.rows import Row, open_lines
    from calibrator.sampling import Stratum, estimated_share, wilson
    from calibrator.scores import score_items
    from calibrator.tower_tuning import Readings
    from calibrator.training_data import load_labelled
    from calibrator.tuning_trial import TUNING_STEPS, TuningTrial, try_tuning

_LAZY = {
    "IMAGE_REASONS": "calibrator.images",
    "Agreement": "calibrator.agreement",
    "By": "calibrator.recalibration",
    "ImageLimits": "calibrator.images",
    "Interval": "calibrator.intervals",
    "auroc_interval": "calibrator.intervals",
    "holds_chance": "calibrator.intervals",
    "Kind": "calibrator.recalibration",
    "Label": "calibrator.agreement",
    "Observed": "calibrator.recalibration_fit",
    "Pinocchio": "calibrator.judge",
    "Progress": "calibrator.progress",
    "Read": "calibrator.fine_tuning",
    "Readings": "calibrator.tower_tuning",
    "Recalibration": "calibrator.recalibration",
    "ROWS_HELP": "calibrator.console",
    "RecalibrationVersions": "calibrator.recalibration_versions",
    "Row": "calibrator.rows",
    "Stratum": "calibrator.sampling",
    "TokenPrompts": "calibrator.llm.elsewhere",
    "Trial": "calibrator.recalibration_trial",
    "TUNING_STEPS": "calibrator.tuning_trial",
    "TunableCheckpoint": "calibrator.fine_tuning",
    "TuningTrial": "calibrator.tuning_trial",
    "agreement_of": "calibrator.agreement",
    "call_doubts": "calibrator.calls.reasons",
    "check_checkpoint": "calibrator.loading",
    "check_device": "calibrator.loading",
    "check_output": "calibrator.fine_tuning",
    "check_readable": "calibrator.console",
    "check_target": "calibrator.console",
    "checked_image": "calibrator.images",
    "checkpoint_card": "calibrator.loading",
    "cli": "calibrator.commands",
    "estimated_share": "calibrator.sampling",
    "export_weights": "calibrator.llm.exporting",
    "file_option": "calibrator.console",
    "fit_observed": "calibrator.recalibration_fit",
    "group_key": "calibrator.recalibration",
    "install_command": "calibrator.installing",
    "keeping": "calibrator.kept_scores",
    "load_labelled": "calibrator.training_data",
    "load_scorer": "calibrator.loading",
    "open_lines": "calibrator.rows",
    "load_token_prompts": "calibrator.llm.elsewhere",
    "locate_images": "calibrator.images",
    "name_elsewhere": "calibrator.llm.elsewhere",
    "recalibrate": "calibrator.recalibrate_command",
    "resolve_recalibration": "calibrator.recalibration_versions",
    "score_items": "calibrator.scores",
    "trial": "calibrator.recalibration_trial",
    "try_tuning": "calibrator.tuning_trial",
    "version_of": "calibrator.loading",
    "wilson": "calibrator.sampling",
    "writer": "calibrator.console",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AFTER_CHARACTERS",
    "HISTORY_CHARACTERS",
    "IMAGE_REASONS",
    "ROWS_HELP",
    "TUNING_STEPS",
    "Agreement",
    "Batcher",
    "By",
    "CalibratorError",
    "CheckpointError",
    "FakeScorer",
    "HubError",
    "ImageLimits",
    "Interval",
    "Item",
    "JudgingError",
    "Kind",
    "Label",
    "MissingExtraError",
    "NotScorableError",
    "Observed",
    "OutputError",
    "Pinocchio",
    "Progress",
    "Question",
    "QueueFullError",
    "Read",
    "Readings",
    "Recalibration",
    "RecalibrationVersions",
    "Row",
    "RowError",
    "Score",
    "Scorer",
    "Stratum",
    "Ticket",
    "TokenPrompts",
    "ToolUse",
    "TrainingError",
    "Trial",
    "TunableCheckpoint",
    "TuningTrial",
    "UnavailableError",
    "agreement_of",
    "answer_message",
    "auroc_interval",
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
    "depiction",
    "estimated_share",
    "export_weights",
    "file_option",
    "fit_observed",
    "group_key",
    "holds_chance",
    "install_command",
    "is_call",
    "is_tool_use",
    "keeping",
    "load_labelled",
    "load_scorer",
    "load_token_prompts",
    "locate_images",
    "message_text",
    "name_elsewhere",
    "open_lines",
    "read_question",
    "reads_images",
    "reads_tool_use",
    "recalibrate",
    "resolve_recalibration",
    "score_items",
    "score_tickets",
    "tool_call",
    "trial",
    "try_tuning",
    "version_of",
    "wilson",
    "writer",
]
