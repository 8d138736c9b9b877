"""YAML in, decisions out: what happens to a completion, given how likely it is to be correct.

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

from policies.actions import (
    Action,
    Annotate,
    Block,
    Clarify,
    Deliver,
    Escalate,
    Hold,
    asks_a_model,
    duration_s,
)
from policies.asking import Asking, surest
from policies.certificate import Certificate, Grant, Scope, load_certificate, parse_certificate
from policies.confidence import MaxError
from policies.costs import Costs
from policies.counting import counted
from policies.decision import (
    Decision,
    Shadowed,
    after_escalation,
    decide,
    decide_calls,
    reaches,
    strictest,
    with_asked,
)
from policies.drift import CALIBRATION_DRIFTED, ErrorMonitor, ScoreMonitor, withdrawal
from policies.errors import InvalidDocumentError, PolicyError, Problem
from policies.facts import Facts, ToolCall
from policies.independence import SeenConversations
from policies.policy import Policy, certified, load_policy, pack_names, parse_policy
from policies.ranking import RecentConfidences
from policies.rules import Rule
from policies.rules import slug as rule_slug
from policies.streams import StreamMode, stream_mode, stream_report
from policies.strict_yaml import Document, load_document, nearest, parse_document

if TYPE_CHECKING:
    from policies.calibration_drift import Band, CalibrationMonitor
    from policies.certification import (
        GRID,
        Certification,
        Labelled,
        Needed,
        certify,
        one_per_question,
    )
    from policies.certification_study import Study, study
    from policies.explanation import Explanation, explain
    from policies.fixtures import (
        Checked,
        Fixture,
        check_fixtures,
        decision_as_values,
        load_fixtures,
    )
    from policies.histograms import Distance, distance
    from policies.linting import circles, lint
    from policies.matches import risk_of, threshold_of
    from policies.possible import possible_decisions
    from policies.promotion import promoted
    from policies.recorded import facts_as_values, facts_from_values
    from policies.replays import Exchange, Replay, replay, shown_decisions, telling_days
    from policies.schema import json_schema
    from policies.workflow_tables import workflow_report
    from policies.workflows import Outcome

_LAZY = {
    "Band": "policies.calibration_drift",
    "CalibrationMonitor": "policies.calibration_drift",
    "Distance": "policies.histograms",
    "distance": "policies.histograms",
    "Certification": "policies.certification",
    "Checked": "policies.fixtures",
    "Exchange": "policies.replays",
    "Explanation": "policies.explanation",
    "Fixture": "policies.fixtures",
    "GRID": "policies.certification",
    "Labelled": "policies.certification",
    "Needed": "policies.certification",
    "Replay": "policies.replays",
    "shown_decisions": "policies.replays",
    "telling_days": "policies.replays",
    "Study": "policies.certification_study",
    "certify": "policies.certification",
    "circles": "policies.linting",
    "check_fixtures": "policies.fixtures",
    "decision_as_values": "policies.fixtures",
    "explain": "policies.explanation",
    "facts_as_values": "policies.recorded",
    "facts_from_values": "policies.recorded",
    "json_schema": "policies.schema",
    "lint": "policies.linting",
    "load_fixtures": "policies.fixtures",
    "possible_decisions": "policies.possible",
    "promoted": "policies.promotion",
    "risk_of": "policies.matches",
    "threshold_of": "policies.matches",
    "one_per_question": "policies.certification",
    "replay": "policies.replays",
    "study": "policies.certification_study",
    "Outcome": "policies.workflows",
    "workflow_report": "policies.workflow_tables",
}
"""What no request needs; a server that only decides does not load it."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CALIBRATION_DRIFTED",
    "GRID",
    "Action",
    "Annotate",
    "Asking",
    "Band",
    "Block",
    "CalibrationMonitor",
    "Certificate",
    "Certification",
    "Checked",
    "Clarify",
    "Costs",
    "Decision",
    "Deliver",
    "Distance",
    "Document",
    "ErrorMonitor",
    "Escalate",
    "Exchange",
    "Explanation",
    "Facts",
    "Fixture",
    "Grant",
    "Hold",
    "InvalidDocumentError",
    "Labelled",
    "MaxError",
    "Needed",
    "Outcome",
    "Policy",
    "PolicyError",
    "Problem",
    "RecentConfidences",
    "Replay",
    "Rule",
    "Scope",
    "ScoreMonitor",
    "SeenConversations",
    "Shadowed",
    "StreamMode",
    "Study",
    "ToolCall",
    "after_escalation",
    "asks_a_model",
    "certified",
    "certify",
    "check_fixtures",
    "circles",
    "counted",
    "decide",
    "decide_calls",
    "decision_as_values",
    "distance",
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
    "parse_certificate",
    "parse_document",
    "parse_policy",
    "possible_decisions",
    "promoted",
    "reaches",
    "replay",
    "risk_of",
    "rule_slug",
    "shown_decisions",
    "stream_mode",
    "stream_report",
    "strictest",
    "study",
    "surest",
    "telling_days",
    "threshold_of",
    "with_asked",
    "withdrawal",
    "workflow_report",
]
