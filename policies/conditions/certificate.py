"""Certificates, with thresholds whose error rate was proved on labelled replies, and their file.

A certificate holds grants. A grant says: of the replies in its scope whose confidence, given by
this calibrator, is at or above `threshold`, at most `max_error` are wrong. The statement holds with
probability `confidence` over the draw of the labelled replies (`policies.certifying.certification`
finds it). A grant carries the counts that prove it, and reading it checks the proof again.

The file is JSON, written by `pinocchio certify` and named by a policy:

    certificate: helpdesk.certificate.json      # beside the policy
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from policies.binomial import lower_tail
from policies.conditions.facts import Facts
from policies.errors import InvalidDocumentError, Problem

FORMAT: Final = "pinocchio-certificate"
VERSION: Final = 1
_NUMBERS: Final = re.compile(r"\[([\s\d,]+)\]")
BINS: Final = 100
"""The number of equal bins that count a grant's labelled confidences, the baseline of drift."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The replies that a grant was certified on; None means all. `rule_digest` pins the rule."""

    model: str | None = None
    team: str | None = None
    rule: str | None = None
    rule_digest: str | None = None

    @property
    def width(self) -> int:
        """The number of open fields; the narrowest grant comes first."""
        return [self.model, self.team, self.rule].count(None)

    def __str__(self) -> str:
        """Return the fields that are set, such as `model gpt-4o, rule pay`, or `all replies`."""
        parts = (("model", self.model), ("team", self.team), ("rule", self.rule))
        return ", ".join(f"{name} {value}" for name, value in parts if value) or "all replies"


@dataclass(frozen=True, slots=True)
class Grant:
    """One certified threshold with its proof: `wrong` of `accepted` of `labels` questions.

    `confidence` is the probability with which the statement is true, 1 - delta. `scores` counts
    the labelled confidences in `BINS` equal bins, for the monitors of `policies.certifying.drift`.
    """

    threshold: float
    max_error: float
    confidence: float
    labels: int
    accepted: int
    wrong: int
    calibrator: str
    scope: Scope = Scope()
    scores: tuple[int, ...] = field(default=(), repr=False)

    @property
    def coverage(self) -> float:
        """The share of the labelled replies at or above the threshold."""
        return self.accepted / self.labels

    @property
    def subject(self) -> tuple[object, ...]:
        """The identity of the statement; a later grant with the same subject replaces this one."""
        scope = self.scope
        return self.calibrator, self.max_error, scope.model, scope.team, scope.rule

    @property
    def digest(self) -> str:
        """A hash that differs from that of any other grant, also on the same subject."""
        return _digest(asdict(self))

    @property
    def is_proved(self) -> bool:
        """Whether the counts prove what the grant says."""
        tail = lower_tail(self.wrong, self.accepted, self.max_error)
        return self.accepted > 0 and tail <= 1.0 - self.confidence

    def is_for(self, facts: Facts) -> bool:
        """Return whether the grant is for this calibrator and the request's model and team.

        Its rule is not compared here, but when a policy is loaded.
        """
        return (
            facts.calibrator == self.calibrator
            and self.scope.model in (None, facts.model)
            and self.scope.team in (None, facts.team)
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """The grants of one file, with the date of issue and a digest of the contents."""

    grants: tuple[Grant, ...]
    issued: str = ""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Set `digest` to the hash of the contents."""
        object.__setattr__(self, "digest", _digest(self._contents()))

    def grants_for(self, max_error: float, rule: str, rule_digest: str) -> tuple[Grant, ...]:
        """Return the grants that allow at most `max_error` and are for all rules or this one.

        The most specific (`Scope.width`) come first, among equals the nearest to `max_error`, then
        the highest `threshold`. A grant for a rule counts for that rule alone, and only while its
        digest is the same, that is, while nothing that decides which replies reach the rule has
        changed.
        """
        fitting = [
            grant
            for grant in self.grants
            if grant.max_error <= max_error
            and (grant.scope.rule, grant.scope.rule_digest) in ((None, None), (rule, rule_digest))
        ]
        return tuple(
            sorted(fitting, key=lambda each: (each.scope.width, -each.max_error, -each.threshold))
        )

    def without(self, withdrawn: Grant) -> Certificate:
        """Return a new certificate without the grant `withdrawn`.

        See `policies.certifying.drift`.
        """
        kept = tuple(grant for grant in self.grants if grant != withdrawn)
        return Certificate(kept, self.issued)

    def to_json(self) -> str:
        """Return the text of the file, JSON with the digest, each list of numbers on one line."""
        text = json.dumps({**self._contents(), "digest": self.digest}, indent=1)
        return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"

    def _contents(self) -> dict[str, Any]:
        """Return the contents of the file as a mapping, without the digest."""
        grants = [asdict(grant) | {"scores": list(grant.scores)} for grant in self.grants]
        return {"format": FORMAT, "version": VERSION, "issued": self.issued, "grants": grants}


def parse_certificate(text: str, source: str) -> Certificate:
    """Parse a certificate's text and check its proofs; `source` is the file's name in errors.

    Raises InvalidDocumentError for anything but a certificate's JSON, another version, damaged or
    changed contents (by the digest), or counts that do not prove a threshold.
    """

    def refuse(message: str) -> InvalidDocumentError:
        """Return the error for `message`, without a line."""
        return InvalidDocumentError([Problem(source, 0, message)])

    try:
        contents = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse("the certificate is not JSON") from error
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise refuse("this is no certificate of `pinocchio certify`")
    if contents.get("version") != VERSION:
        raise refuse(f"the certificate's version is {contents.get('version')!r}, not {VERSION}")
    try:
        certificate = Certificate(
            tuple(_read_grant(grant) for grant in contents["grants"]), contents["issued"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(f"the certificate is damaged: {error}") from error
    if contents.get("digest") != certificate.digest:
        raise refuse("the certificate was changed after it was written; certify again")
    for grant in certificate.grants:
        if not grant.is_proved:
            raise refuse(f"the counts for {grant.scope} do not prove its threshold")
    return certificate


def load_certificate(path: Path) -> Certificate | None:
    """Load a certificate's file, or return None where there is none.

    A policy may name its certificate before it exists; its `max_error` then matches nothing. Raises
    InvalidDocumentError for a file that cannot be read or is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        message = f"the certificate cannot be read: {error}"
        raise InvalidDocumentError([Problem(str(path), 0, message)]) from error
    return parse_certificate(text, str(path))


def _read_grant(values: Mapping[str, Any]) -> Grant:
    """Read one grant from the JSON object of a file.

    Raises KeyError, TypeError or ValueError where members are missing or unknown, a number is out
    of its range, or `scores` is not `BINS` counts.
    """
    names = {each.name for each in fields(Grant)}
    if set(values) != names:
        raise ValueError("a grant has other members than it should")
    scope = Scope(**values["scope"])
    grant = Grant(**{**values, "scope": scope, "scores": tuple(values["scores"])})
    if not 0 <= grant.threshold <= 1 or not 0 < grant.max_error < 1:
        raise ValueError("a threshold or an error rate is no probability")
    if not 0 < grant.confidence < 1 or not 0 <= grant.wrong <= grant.accepted <= grant.labels:
        raise ValueError("the counts of a grant contradict each other")
    is_counts = all(type(count) is int and count >= 0 for count in grant.scores)
    if len(grant.scores) != BINS or not is_counts:
        raise ValueError(f"the scores of a grant are not counts in {BINS} bins")
    return grant


def _digest(contents: Mapping[str, Any]) -> str:
    """Return 16 hex digits of the SHA-256 of the contents as canonical JSON."""
    canonical = json.dumps(contents, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
