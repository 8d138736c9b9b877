"""Policies in YAML, and the decisions about completions that they lead to.

    policy = load_policy("helpdesk")
    facts = Facts(confidence=0.12, model="gpt-5.6")
    decision = decide(policy, facts)
    decision.action                     # Hold(queue='review', reply=None, expires_s=604800.0)
    decision.rule, decision.label       # 'very unsure', 'helpdesk/very-unsure@...'
    stream_mode(policy, model="gpt-5.6")    # StreamMode(mode='buffer', rule=...)

The package is pure: it reads policies, fixtures and certificates, opens no socket, and needs only
PyYAML. README.md beside this file has an example of everything that a policy can say.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from policies.certifying.drift import CALIBRATION_DRIFTED, ErrorMonitor, ScoreMonitor, withdrawal
from policies.certifying.independence import SeenConversations
from policies.conditions.certificate import (
    Certificate,
    Grant,
    Scope,
    load_certificate,
    parse_certificate,
)
from policies.conditions.confidence import MaxError
from policies.conditions.facts import Facts, ToolCall
from policies.conditions.ranking import RecentConfidences
from policies.conditions.tool_names import OfferedTools
from policies.counting import plural
from policies.deciding.actions import (
    MAX_APPROVALS,
    Action,
    Annotate,
    Block,
    Clarify,
    Deliver,
    Escalate,
    Hold,
    asks_a_model,
)
from policies.deciding.asking import ReplyCounts, surest
from policies.deciding.costs import Costs
from policies.deciding.decision import (
    Decision,
    ShadowAction,
    after_escalation,
    decide,
    decide_calls,
    reaches,
    strictest,
    with_requested,
)
from policies.deciding.judge import Judge
from policies.deciding.policy import (
    Policy,
    json_schema,
    load_policy,
    pack_names,
    pack_text,
    parse_policy,
    with_certificate,
)
from policies.deciding.rules import Rule
from policies.deciding.rules import slug as rule_slug
from policies.deciding.second_opinion import SecondOpinion
from policies.deciding.streams import StreamMode, stream_mode, stream_report
from policies.errors import InvalidDocumentError, PolicyError, Problem
from policies.reading.shapes import duration_s
from policies.reading.strict_yaml import Document, load_document, nearest, parse_document

if TYPE_CHECKING:
    from policies.certifying.calibration_drift import CalibrationMonitor, VerdictBand
    from policies.certifying.certification import (
        GRID,
        Certification,
        LabelledScore,
        certify,
        one_per_question,
    )
    from policies.certifying.certification_study import Study, study
    from policies.certifying.missing_labels import NeededLabels
    from policies.trying.explanation import Explanation, explain
    from policies.trying.fixtures import (
        Fixture,
        FixtureResult,
        check_fixtures,
        decision_as_values,
        load_fixtures,
    )
    from policies.trying.linting import circles, lint
    from policies.trying.matches import risk_of, threshold_of
    from policies.trying.possible import possible_decisions
    from policies.trying.promotion import promote
    from policies.trying.recorded import facts_as_values, facts_from_values
    from policies.trying.replays import Exchange, Replay, describe_decisions, replay, telling_days

_LAZY = {
    "policies.certifying.calibration_drift": ("CalibrationMonitor", "VerdictBand"),
    "policies.certifying.certification": (
        "Certification",
        "GRID",
        "LabelledScore",
        "certify",
        "one_per_question",
    ),
    "policies.certifying.certification_study": ("Study", "study"),
    "policies.certifying.missing_labels": ("NeededLabels",),
    "policies.trying.explanation": ("Explanation", "explain"),
    "policies.trying.fixtures": (
        "Fixture",
        "FixtureResult",
        "check_fixtures",
        "decision_as_values",
        "load_fixtures",
    ),
    "policies.trying.linting": ("circles", "lint"),
    "policies.trying.matches": ("risk_of", "threshold_of"),
    "policies.trying.possible": ("possible_decisions",),
    "policies.trying.promotion": ("promote",),
    "policies.trying.recorded": ("facts_as_values", "facts_from_values"),
    "policies.trying.replays": (
        "Exchange",
        "Replay",
        "replay",
        "describe_decisions",
        "telling_days",
    ),
}
"""The names that each module has for the package and that are imported on first use.

No request needs them, so a server does not load them.
"""


def __getattr__(name: str) -> Any:
    """Import a name of `_LAZY` from its module. Raises AttributeError for any other name."""
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CALIBRATION_DRIFTED",
    "GRID",
    "MAX_APPROVALS",
    "Action",
    "Annotate",
    "Block",
    "CalibrationMonitor",
    "Certificate",
    "Certification",
    "Clarify",
    "Costs",
    "Decision",
    "Deliver",
    "Document",
    "ErrorMonitor",
    "Escalate",
    "Exchange",
    "Explanation",
    "Facts",
    "Fixture",
    "FixtureResult",
    "Grant",
    "Hold",
    "InvalidDocumentError",
    "Judge",
    "LabelledScore",
    "MaxError",
    "NeededLabels",
    "OfferedTools",
    "Policy",
    "PolicyError",
    "Problem",
    "RecentConfidences",
    "Replay",
    "ReplyCounts",
    "Rule",
    "Scope",
    "ScoreMonitor",
    "SecondOpinion",
    "SeenConversations",
    "ShadowAction",
    "StreamMode",
    "Study",
    "ToolCall",
    "VerdictBand",
    "after_escalation",
    "asks_a_model",
    "certify",
    "check_fixtures",
    "circles",
    "decide",
    "decide_calls",
    "decision_as_values",
    "describe_decisions",
    "duration_s",
    "explain",
    "facts_as_values",
    "facts_from_values",
    "json_schema",
    "lint",
    "load_certificate",
    "load_document",
    "load_fixtures",
    "load_policy",
    "nearest",
    "one_per_question",
    "pack_names",
    "pack_text",
    "parse_certificate",
    "parse_document",
    "parse_policy",
    "plural",
    "possible_decisions",
    "promote",
    "reaches",
    "replay",
    "risk_of",
    "rule_slug",
    "stream_mode",
    "stream_report",
    "strictest",
    "study",
    "surest",
    "telling_days",
    "threshold_of",
    "with_certificate",
    "with_requested",
    "withdrawal",
]
