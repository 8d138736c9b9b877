"""The numbers and choices of the `pinocchio` object."""

from __future__ import annotations

from policies import Facts, decide, load_policy
from proxy.exchange.exchange import new_request_id
from proxy.exchange.outcome import Outcome, summarise
from proxy.formats import Choice
from proxy.http.wire.json_splice import dumps
from proxy.scoring.scoring import Confidence, Status

STEPS = 10_000  # steps of a confidence as it is shown


def outcome_of(confidence: float = 0.73, index: int = 0) -> Outcome:
    decision = decide(load_policy("observe"), Facts(confidence, "m"))
    scored = Confidence(confidence, Status.SCORED)
    choice = Choice(index, {"role": "assistant", "content": "yes"}, "stop")
    return summarise(new_request_id(), [choice], [scored], [decision], "embedded@0b0fe558")


def test_confidences_have_the_same_decimals() -> None:
    """Object, choice and header have the same decimals of a confidence."""
    outcome = outcome_of()
    for step in range(STEPS + 1):
        outcome.confidence = step / STEPS
        outcome.choices = [(outcome.choices[0][0], Confidence(step / STEPS, Status.SCORED), None)]
        written = dumps(outcome.member())
        value = dumps(round(step / STEPS, 4))
        assert written.count(b'"confidence":' + value + b",") == 2, written
        header = dict(outcome.headers())[b"x-pinocchio-confidence"]
        assert float(header) == round(step / STEPS, 4)


def test_each_choice_has_its_own_entry() -> None:
    """Each choice of a reply has its own entry."""
    one, other = outcome_of(0.9), outcome_of(0.4, index=1)
    one.choices = [*one.choices, *other.choices]
    assert [each["confidence"] for each in one.member()["choices"]] == [0.9, 0.4]
