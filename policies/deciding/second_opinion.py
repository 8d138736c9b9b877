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
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

from policies.conditions.conditions import ON_REQUEST, WHEN_IN_BAND, When
from policies.conditions.confidence import Band, MaxError
from policies.conditions.facts import Facts
from policies.deciding.rules import Rule
from policies.reading.reading import Node
from policies.reading.shapes import MODELS, Shape, duration, mapping, whole, word

Start: TypeAlias = Literal["after", "with"]
AskingWhen: TypeAlias = tuple[When, bool]
"""The conditions of the replies asked about, and whether these are all near a threshold."""

STARTS: Final[tuple[Start, ...]] = ("after", "with")
NEAR_THRESHOLD: Final = "near_threshold"
MAX_OPINIONS: Final = 8
WITHIN_S: Final = 20.0
MAX_WITHIN: Final = "10m"
ANY_REPLY: Final[AskingWhen] = When(), False
LIFT: Final = 1.8  # log-odds; in three of four replies one agreeing reply lifts at most this far
FALL: Final = 0.9  # log-odds; in three of four replies one differing reply lowers at most this far


@dataclass(frozen=True, slots=True, kw_only=True)
class Consultation:
    """The replies about which others are asked, and how long these replies wait.

    With `is_near` only replies near a threshold of the rules count, and `bands` are their
    confidences. A reply waits for at most `within_s` seconds.
    """

    when: When = field(default_factory=When)
    within_s: float = WITHIN_S
    is_near: bool = False
    bands: tuple[Band, ...] = ()

    def near(self, rules: Iterable[Rule]) -> Self:
        """Return a copy whose `bands` surround the thresholds of the rules that are not in shadow.

        Without `is_near` it is returned unchanged.
        """
        if not self.is_near:
            return self
        thresholds = (t for rule in rules if not rule.is_shadow for t in _thresholds(rule))
        return replace(self, bands=bands_around(thresholds))

    def is_wanted(self, facts: Facts) -> bool:
        """Return whether others are to be asked about the reply with these facts.

        False without a confidence, where `when` does not hold, and with `is_near` where the
        confidence is in none of the `bands`. The facts are those from before anyone was asked.
        """
        if facts.confidence is None or not self.when.holds(facts):
            return False
        return not self.is_near or any(band.holds(facts) for band in self.bands)

    @property
    def where(self) -> str:
        """The description of these replies for `pinocchio check`.

        It is `every reply` or `replies whose confidence is from 0.3 below 0.9`; conditions on
        anything but the confidence are not named.
        """
        if self.is_near:
            bands = " or ".join(map(str, self.bands)) or "near a threshold, of which there is none"
            return f"replies whose confidence is {bands}"
        if self.when.confidence is not None:
            return f"replies whose confidence is {self.when.confidence}"
        return "every reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinion(Consultation):
    """The models to ask for a second opinion, and the replies they are asked about.

    `n` replies are asked for, from `models` in turn.
    """

    models: tuple[str, ...]
    n: int = 1
    start: Start = "after"

    def may_be_wanted(self, request: Facts) -> bool:
        """Return whether the conditions of `when` on the request hold, so others may be asked."""
        return self.when.admits(request)

    def models_for(self, answering: Collection[str]) -> tuple[str, ...]:
        """Return the models to ask, `n` entries that take the models in turn: `("a", "b", "a")`.

        Models in `answering`, which gave the reply itself, are used only if there are no others,
        because they would repeat their opinion.
        """
        others = [model for model in self.models if model not in answering] or list(self.models)
        return tuple(others[at % len(others)] for at in range(self.n))

    def __str__(self) -> str:
        """Return the sentence of `pinocchio check`: `asks gpt-5-mini for a second opinion ...`.

        It names the models, the replies asked about, when others are asked and how long a reply
        waits.
        """
        models = " and ".join(dict.fromkeys(self.models_for(())))
        when = "together with the request" if self.start == "with" else "after their score"
        return (
            f"asks {models} for a second opinion about {self.where}, {when}, waiting at most "
            f"{self.within_s:g} s"
        )


def _second_opinion(
    node: Node,
    *,
    when: AskingWhen = ANY_REPLY,
    within: float = WITHIN_S,
    n: int = 1,
    start: Start = "after",
    **values: Any,
) -> SecondOpinion:
    """Build the `SecondOpinion` from its keys; `when` is (conditions, is near a threshold).

    Reported are a model named twice and, with `start: with`, conditions that look at the reply.
    """
    models = values["from"]
    if len(set(models)) < len(models):
        node["from"].report(f"{node['from']} names a model twice; `n` asks one several times")
    conditions, is_near = when
    if start == "with" and (is_near or not set(conditions.condition_names()) <= set(ON_REQUEST)):
        node["when"].report(
            f"{node['when']} looks at the reply, which is not there yet where start is `with`; "
            f"leave `start` out, or use conditions on the request: {', '.join(ON_REQUEST)}"
        )
    return SecondOpinion(
        models=models, n=n, when=conditions, start=start, within_s=within, is_near=is_near
    )


def _read_when(node: Node) -> AskingWhen:
    """Read `near_threshold` as (no conditions, True), or conditions as (conditions, False)."""
    if node.value == NEAR_THRESHOLD:
        return When(), True
    return WHEN_IN_BAND.read(node), False


ASKING_WHEN: Final = Shape(_read_when, {"anyOf": [{"const": NEAR_THRESHOLD}, WHEN_IN_BAND.schema]})
SECOND_OPINION: Final = mapping(
    _second_opinion,
    {
        "from": MODELS,
        "when": ASKING_WHEN,
        "n": whole(1, MAX_OPINIONS),
        "start": word(STARTS),
        "within": duration(MAX_WITHIN),
    },
    required=("from",),
)


def check_near(node: Node, consultation: Consultation | None, rules: Iterable[Rule]) -> None:
    """Report `when: near_threshold` of `consultation`, read at `node`, if no rule has a threshold.

    Nothing is reported where `consultation` is None.
    """
    if consultation is not None and consultation.is_near and not any(map(_has_threshold, rules)):
        near = node["when"]
        near.report(f"{near} is near_threshold, and no rule has a threshold of confidence")


def _has_threshold(rule: Rule) -> bool:
    """Return whether the rule has a threshold of confidence, or a `max_error` to be certified."""
    return isinstance(rule.when.confidence, MaxError) or bool(_thresholds(rule))


def _thresholds(rule: Rule) -> list[float]:
    """Return the rule's thresholds of confidence, or [] if it has none.

    These are the certified ones of a `max_error` condition, or the ends of a band without 0 and 1.
    """
    condition = rule.when.confidence
    if isinstance(condition, MaxError):
        return [grant.threshold for grant in condition.grants]
    edges = [condition.low, condition.high] if isinstance(condition, Band) else []
    return [edge for edge in edges if 0 < edge < 1]


def bands_around(thresholds: Iterable[float]) -> tuple[Band, ...]:
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
