"""The calibrator: text in, probability out, without HTTP and policies.

Other packages import these names from here; each module is loaded when the first of its names is
used, so that a program pays only for what it needs (numpy, torch).
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The only list of names: imports for type checkers (`X as X` exports X), a table for `_modules`.
if TYPE_CHECKING:
    from calibrator.batching import Batcher as Batcher
    from calibrator.batching import Ticket as Ticket
    from calibrator.batching import score_tickets as score_tickets
    from calibrator.checkpoints.extras import ON_A_GPU as ON_A_GPU
    from calibrator.checkpoints.extras import has_gpu_and_torch as has_gpu_and_torch
    from calibrator.checkpoints.extras import torch_sees_gpu as torch_sees_gpu
    from calibrator.commands.progress import Progress as Progress
    from calibrator.commands.recalibrate import recalibrate as recalibrate
    from calibrator.commands.score import score as score
    from calibrator.commands.terminal import ROWS_HELP as ROWS_HELP
    from calibrator.commands.terminal import check_target as check_target
    from calibrator.commands.terminal import file_option as file_option
    from calibrator.commands.terminal import refuse as refuse
    from calibrator.commands.terminal import writer as writer
    from calibrator.errors import CalibratorError as CalibratorError
    from calibrator.errors import CheckpointError as CheckpointError
    from calibrator.errors import HubError as HubError
    from calibrator.errors import InputError as InputError
    from calibrator.errors import NotScorableError as NotScorableError
    from calibrator.errors import QueueFullError as QueueFullError
    from calibrator.errors import RowError as RowError
    from calibrator.errors import UnavailableError as UnavailableError
    from calibrator.errors import install_command as install_command
    from calibrator.features.successors import plain_name as plain_name
    from calibrator.llm.exporting import export_weights as export_weights
    from calibrator.llm.serving.token_prompts import load_token_prompts as load_token_prompts
    from calibrator.llm.serving.token_prompts import name_elsewhere as name_elsewhere
    from calibrator.loading import check_checkpoint as check_checkpoint
    from calibrator.loading import check_device as check_device
    from calibrator.loading import checkpoint_card as checkpoint_card
    from calibrator.loading import load_facts_for as load_facts_for
    from calibrator.loading import load_scorer as load_scorer
    from calibrator.loading import version_of as version_of
    from calibrator.metrics.agreement import Agreement as Agreement
    from calibrator.metrics.agreement import Label as Label
    from calibrator.metrics.agreement import agreement_of as agreement_of
    from calibrator.metrics.intervals import Gain as Gain
    from calibrator.metrics.intervals import Interval as Interval
    from calibrator.metrics.intervals import auroc_interval as auroc_interval
    from calibrator.metrics.intervals import gains as gains
    from calibrator.metrics.intervals import holds_chance as holds_chance
    from calibrator.metrics.sampling import Stratum as Stratum
    from calibrator.metrics.sampling import estimated_share as estimated_share
    from calibrator.metrics.sampling import wilson as wilson
    from calibrator.metrics.workflows import Outcome as Outcome
    from calibrator.metrics.workflows import workflow_report as workflow_report
    from calibrator.pinocchio import Pinocchio as Pinocchio
    from calibrator.readers.calls.notes.marks import call_notes as call_notes
    from calibrator.readers.calls.reasons import call_doubts as call_doubts
    from calibrator.readers.evidence.facts.fact_file import FactFile as FactFile
    from calibrator.readers.evidence.facts.fact_file import load_facts as load_facts
    from calibrator.recalibration.curves import By as By
    from calibrator.recalibration.curves import Kind as Kind
    from calibrator.recalibration.curves import Of as Of
    from calibrator.recalibration.curves import Recalibration as Recalibration
    from calibrator.recalibration.curves import group_key as group_key
    from calibrator.recalibration.fit import LabelledConfidences as LabelledConfidences
    from calibrator.recalibration.fit import fit_observed as fit_observed
    from calibrator.recalibration.judge_prior import weigh_by_prior as weigh_by_prior
    from calibrator.recalibration.signals import LabelledSignals as LabelledSignals
    from calibrator.recalibration.signals import SignalWeights as SignalWeights
    from calibrator.recalibration.signals import WeighedConfidence as WeighedConfidence
    from calibrator.recalibration.signals import fit_signals as fit_signals
    from calibrator.recalibration.signals import weigh_replies as weigh_replies
    from calibrator.recalibration.trial import Trial as Trial
    from calibrator.recalibration.trial import compare_fits as compare_fits
    from calibrator.recalibration.trial import fixed_confidences as fixed_confidences
    from calibrator.recalibration.trial import predict_unseen as predict_unseen
    from calibrator.recalibration.trial import trial as trial
    from calibrator.recalibration.versions import Recalibrations as Recalibrations
    from calibrator.recalibration.versions import RecalibrationVersions as RecalibrationVersions
    from calibrator.recalibration.versions import recalibration_files as recalibration_files
    from calibrator.recalibration.versions import resolve_recalibrations as resolve_recalibrations
    from calibrator.recalibration.versions import versions_named as versions_named
    from calibrator.rows.files import check_readable as check_readable
    from calibrator.rows.kept_scores import cache_scores as cache_scores
    from calibrator.rows.rows import Row as Row
    from calibrator.rows.rows import open_lines as open_lines
    from calibrator.rows.scores import score_items as score_items
    from calibrator.rows.selection import bad_row_sentences as bad_row_sentences
    from calibrator.rows.selection import copies_in as copies_in
    from calibrator.rows.selection import load_labelled as load_labelled
    from calibrator.scorer import ACTS as ACTS
    from calibrator.scorer import BASES as BASES
    from calibrator.scorer import HIGH as HIGH
    from calibrator.scorer import IN_WORDS as IN_WORDS
    from calibrator.scorer import LIKENESS as LIKENESS
    from calibrator.scorer import LOGPROBS as LOGPROBS
    from calibrator.scorer import MARKS as MARKS
    from calibrator.scorer import NO_SIGNALS as NO_SIGNALS
    from calibrator.scorer import OPINIONS as OPINIONS
    from calibrator.scorer import PRIOR as PRIOR
    from calibrator.scorer import RISKS as RISKS
    from calibrator.scorer import WITH_OTHERS as WITH_OTHERS
    from calibrator.scorer import CallNotes as CallNotes
    from calibrator.scorer import FakeScorer as FakeScorer
    from calibrator.scorer import FieldDoubt as FieldDoubt
    from calibrator.scorer import Item as Item
    from calibrator.scorer import Mark as Mark
    from calibrator.scorer import OtherReply as OtherReply
    from calibrator.scorer import Score as Score
    from calibrator.scorer import Scorer as Scorer
    from calibrator.scorer import Signals as Signals
    from calibrator.scorer import ToolUse as ToolUse
    from calibrator.scorer import UnsupportedSentence as UnsupportedSentence
    from calibrator.scorer import basis_with as basis_with
    from calibrator.scorer import has_prior as has_prior
    from calibrator.scorer import knows_others as knows_others
    from calibrator.scorer import knows_signals as knows_signals
    from calibrator.scorer import opinion_of as opinion_of
    from calibrator.scorer import provenance as provenance
    from calibrator.scorer import read_notes as read_notes
    from calibrator.scorer import reads_images as reads_images
    from calibrator.scorer import reads_tool_use as reads_tool_use
    from calibrator.scorer import without_signals as without_signals
    from calibrator.text.asides import has_asides as has_asides
    from calibrator.text.asides import messages_without_asides as messages_without_asides
    from calibrator.text.asides import own_instructions as own_instructions
    from calibrator.text.asides import split_asides as split_asides
    from calibrator.text.images import IMAGE_REASONS as IMAGE_REASONS
    from calibrator.text.images import ImageLimits as ImageLimits
    from calibrator.text.images import checked_image as checked_image
    from calibrator.text.images import locate_images as locate_images
    from calibrator.text.replies import answer_message as answer_message
    from calibrator.text.replies import blocks_message as blocks_message
    from calibrator.text.replies import is_call as is_call
    from calibrator.text.replies import is_tool_use as is_tool_use
    from calibrator.text.replies import listed_tools as listed_tools
    from calibrator.text.replies import tool_call as tool_call
    from calibrator.text.transcript import AFTER_CHARACTERS as AFTER_CHARACTERS
    from calibrator.text.transcript import HISTORY_CHARACTERS as HISTORY_CHARACTERS
    from calibrator.text.transcript import Question as Question
    from calibrator.text.transcript import depiction as depiction
    from calibrator.text.transcript import message_text as message_text
    from calibrator.text.transcript import read_question as read_question
    from calibrator.tuning.fine_tuning import TUNING_STEPS as TUNING_STEPS
    from calibrator.tuning.fine_tuning import TunableCheckpoint as TunableCheckpoint
    from calibrator.tuning.fine_tuning import TuningTrial as TuningTrial
    from calibrator.tuning.fine_tuning import check_output as check_output
    from calibrator.tuning.fine_tuning import try_tuning as try_tuning
    from calibrator.tuning.last_layer import CheckpointOutput as CheckpointOutput
    from calibrator.tuning.last_layer import Readings as Readings
else:

    def __getattr__(name: str) -> Any:
        if name in _modules():
            return getattr(import_module(_modules()[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _modules() -> dict[str, str]:
    """Return the module of each name that is imported above, read from the text of this file."""
    imports = ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    return {
        alias.asname: node.module
        for node in imports
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }
