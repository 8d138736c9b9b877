"""YAML in, decisions out: what happens to a completion, given how likely it is to be correct.

    policy = load_policy("helpdesk")
    facts = Facts(confidence=0.12, model="gpt-5.6")
    decision = decide(policy, facts)
    decision.action                     # Hold(queue='review', reply=None, expires_s=604800.0)
    decision.rule, decision.label       # 'very unsure', 'helpdesk/very-unsure@...'
    stream_mode(policy, model="gpt-5.6")    # StreamMode(mode='buffer', rule=...)

The package is pure: it reads YAML files and nothing else, and needs only PyYAML.
"""

from policies.actions import Action, Annotate, Block, Clarify, Deliver, Escalate, Hold
from policies.decision import Decision, after_escalation, decide, strictest
from policies.errors import InvalidDocumentError, PolicyError, Problem
from policies.facts import Facts, ToolCall
from policies.policy import Policy, Rule, load_policy, pack_names, parse_policy
from policies.streams import StreamMode, stream_mode, stream_report
from policies.strict_yaml import Document, load_document, nearest, parse_document

__all__ = [
    "Action",
    "Annotate",
    "Block",
    "Clarify",
    "Decision",
    "Deliver",
    "Document",
    "Escalate",
    "Facts",
    "Hold",
    "InvalidDocumentError",
    "Policy",
    "PolicyError",
    "Problem",
    "Rule",
    "StreamMode",
    "ToolCall",
    "after_escalation",
    "decide",
    "load_document",
    "load_policy",
    "nearest",
    "pack_names",
    "parse_document",
    "parse_policy",
    "stream_mode",
    "stream_report",
    "strictest",
]
