"""A second opinion: answers of other models to the same question, before the rules decide.

    second_opinion:
      from: [gpt-5-mini]                            # the models to ask, one or several
      when: {confidence: {between: [0.3, 0.9]}}     # or near_threshold, or left out: always
      n: 1                                          # replies to ask for, each one call
      start: after                                  # after the reply's score; or with the request
      within: 20s                                   # the longest time that the reply waits

The reply of the requested model is still the one that is delivered. Only its confidence changes
with the agreement of the others, and the rules look at that confidence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self, TypeAlias

from policies.conditions.conditions import ON_REQUEST, When, read_when
from policies.conditions.confidence import Band, MaxError
from policies.conditions.facts import Facts
from policies.deciding.actions import duration_s
from policies.deciding.rules import Rule
from policies.reading.reading import Node, abbreviate

Start: TypeAlias = Literal["after", "with"]

KEYS: Final = ("from", "when", "n", "start", "within")
STARTS: Final[tuple[Start, ...]] = ("after", "with")
NEAR_THRESHOLD: Final = "near_threshold"
MAX_OPINIONS: Final = 8
WITHIN_S: Final = 20.0
MAX_WITHIN_S: Final = 600.0
LIFT: Final = 1.8  # log-odds; in three of four replies one agreeing reply lifts at most this far
FALL: Final = 0.9  # log-odds; in three of four replies one differing reply lowers at most this far


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAbout:
    """The replies about which others are asked, and how long these replies wait.

    With `is_near` only replies near a threshold of the rules count, and `bands` are their
    confidences. A reply waits for at most `within_s` seconds.
    """

    when: When = field(default_factory=When)
    within_s: float = WITHIN_S
    is_near: bool = False
    bands: tuple[Band, ...] = ()

    def near(self, rules: Iterable[Rule]) -> Self:
        """Return a copy with bands around the current thresholds of these rules."""
        if not self.is_near:
            return self
        thresholds = (t for rule in rules if not rule.is_shadow for t in _thresholds(rule))
        return replace(self, bands=around(thresholds))

    def is_wanted(self, facts: Facts) -> bool:
        """Return whether others are to be asked about this reply; False for one without a score.

        The facts are those from before anyone was asked.
        """
        if facts.confidence is None or not self.when.holds(facts):
            return False
        return not self.is_near or any(band.holds(facts) for band in self.bands)

    @property
    def where(self) -> str:
        """The description of these replies for `pinocchio check`."""
        if self.is_near:
            bands = " or ".join(map(str, self.bands)) or "near a threshold, of which there is none"
            return f"replies whose confidence is {bands}"
        if self.when.confidence is not None:
            return f"replies whose confidence is {self.when.confidence}"
        return "every reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinion(AskedAbout):
    """The models to ask for a second opinion, and the replies they are asked about.

    `n` replies are asked for, from `models` in turn.
    """

    models: tuple[str, ...]
    n: int = 1
    start: Start = "after"

    def may_be_wanted(self, request: Facts) -> bool:
        """Return whether the request's conditions allow that others are asked."""
        return self.when.admits(request)

    def models_for(self, answering: Collection[str]) -> tuple[str, ...]:
        """Return the models to ask, one entry for each reply.

        Models of which the reply itself was asked (`answering`) are used only if there are no
        others, because they would repeat their opinion.
        """
        others = [model for model in self.models if model not in answering] or list(self.models)
        return tuple(others[at % len(others)] for at in range(self.n))

    def __str__(self) -> str:
        """Return the sentence of `pinocchio check`: `asks gpt-5-mini about ...`."""
        asked = " and ".join(dict.fromkeys(self.models_for(())))
        when = "together with the request" if self.start == "with" else "after their score"
        return (
            f"asks {asked} for a second opinion about {self.where}, {when}, waiting at most "
            f"{self.within_s:g} s"
        )


def read_second_opinion(node: Node, rules: Sequence[Rule]) -> SecondOpinion | None:
    """Read `second_opinion`, None where absent; problems are reported.

    See `policies.reading.reading`.
    """
    if not node.is_present:
        return None
    node.check_keys(KEYS, required=("from",))
    models = node["from"].several_models() if node["from"].is_present else ("",)
    if len(set(models)) < len(models):
        node["from"].report(f"{node['from']} names a model twice; `n` asks one several times")
    start: Start = node["start"].choice(STARTS, "after")
    when, is_near = read_replies(node["when"], rules)
    if start == "with" and (is_near or not set(when.condition_names()) <= set(ON_REQUEST)):
        node["when"].report(
            f"{node['when']} looks at the reply, which is not there yet where start is `with`; "
            f"leave `start` out, or use conditions on the request: {', '.join(ON_REQUEST)}"
        )
    n, within_s = _read_count(node["n"]), read_time(node["within"])
    found = SecondOpinion(
        models=models, n=n, when=when, start=start, within_s=within_s, is_near=is_near
    )
    return found.near(rules)


def read_replies(node: Node, rules: Sequence[Rule]) -> tuple[When, bool]:
    """Read the conditions of the replies asked about, and whether they are `near_threshold`."""
    is_near = node.value == NEAR_THRESHOLD
    when = When() if is_near else read_when(node)
    if is_near and not any(map(_has_threshold, rules)):
        node.report(f"{node} is near_threshold, and no rule has a threshold of confidence")
    if not isinstance(when.confidence, Band | None):
        node["confidence"].report(f"{node['confidence']} must be below, at_least or between")
    return when, is_near


def _read_count(node: Node) -> int:
    n = node.value if node.is_present else 1
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_OPINIONS:
        node.report(f"{node} must be a whole number from 1 to {MAX_OPINIONS}, not {abbreviate(n)}")
        return 1
    return n


def read_time(node: Node, default: float = WITHIN_S) -> float:
    """Read how many seconds a reply waits for others; problems are reported."""
    if not node.is_present:
        return default
    seconds = duration_s(node.value) if isinstance(node.value, str) else None
    if seconds is None or not 0 < seconds <= MAX_WITHIN_S:
        node.report(f"{node} must be a duration from 1s to 10m, not {abbreviate(node.value)}")
        return default
    return seconds


def _has_threshold(rule: Rule) -> bool:
    return isinstance(rule.when.confidence, MaxError) or bool(_thresholds(rule))


def _thresholds(rule: Rule) -> list[float]:
    condition = rule.when.confidence
    if isinstance(condition, MaxError):
        return [grant.threshold for grant in condition.grants]
    edges = [condition.low, condition.high] if isinstance(condition, Band) else []
    return [edge for edge in edges if 0 < edge < 1]


def around(thresholds: Iterable[float]) -> tuple[Band, ...]:
    """Return the bands of confidences that one other reply can move across a threshold.

    A band is from `LIFT` below a threshold to `FALL` above it, in log-odds; touching bands are
    merged.
    """
    bands: list[Band] = []
    for threshold in sorted(thresholds):
        low, high = _shift_odds(threshold, -LIFT), _shift_odds(threshold, FALL)
        if bands and low <= bands[-1].high:
            low = bands.pop().low
        bands.append(Band(low, high))
    return tuple(bands)


def _shift_odds(probability: float, by: float) -> float:
    """Return a probability moved by these log-odds, rounded to two digits."""
    odds = math.log(probability / (1 - probability)) + by
    return round(1 / (1 + math.exp(-odds)), 2)
