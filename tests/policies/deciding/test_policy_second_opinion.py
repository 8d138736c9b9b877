"""`second_opinion`: parsing, where a policy wants one, and replay."""

from __future__ import annotations

import math

import pytest

from policies import Facts, InvalidDocumentError, Policy, SecondOpinion, parse_policy, replay
from policies.conditions.certificate import Certificate, Grant
from policies.conditions.conditions import When
from policies.conditions.confidence import Band
from policies.conditions.globs import Globs
from policies.deciding.policy import with_certificate
from policies.deciding.second_opinion import bands_around
from policies.trying.known_facts import facts_known_to
from policies.trying.recorded import facts_as_values, facts_from_values
from policies.trying.replays import Exchange

UNSURE = "{name: unsure, when: {confidence: {below: 0.5}}, then: hold}"
KNOWING = "c@1+opinion@1"


def policy(opinion: str, *rules: str, more: str = "") -> Policy:
    text = f"version: 1\nname: p\ndefault: deliver\nsecond_opinion: {opinion}\n"
    return parse_policy(f"{text}rules: [{', '.join(rules)}]\n{more}", "p.yaml")


def wanted(opinion: str, *rules: str) -> SecondOpinion:
    found = policy(opinion, *rules).second_opinion
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("opinion", "expected"),
    [
        ("{from: b}", SecondOpinion(models=("b",))),
        ("{from: [b, c], n: 2, within: 5s}", SecondOpinion(models=("b", "c"), n=2, within_s=5.0)),
        (
            "{from: b, when: {confidence: {between: [0.3, 0.9]}}}",
            SecondOpinion(models=("b",), when=When(Band(0.3, 0.9))),
        ),
        (
            "{from: b, start: with, when: {team: law}}",
            SecondOpinion(models=("b",), when=When(team=Globs(("law",))), start="with"),
        ),
    ],
)
def test_it_is_read_as_written(opinion: str, expected: SecondOpinion) -> None:
    """A second opinion is parsed: models, condition, number and waiting time."""
    assert wanted(opinion, UNSURE) == expected


@pytest.mark.parametrize(
    ("opinion", "problem"),
    [
        ("{}", "missing key 'from' in second_opinion"),
        ("{from: []}", "second_opinion.from is empty"),
        ("{from: [b, b]}", "second_opinion.from names a model twice"),
        ("{from: b, n: 0}", "second_opinion.n must be a whole number from 1 to 8, not 0"),
        ("{from: b, n: 9}", "second_opinion.n must be a whole number from 1 to 8, not 9"),
        (
            "{from: b, within: 20}",
            "second_opinion.within must be a duration such as 30s, 30m, 2h or 7d, not 20",
        ),
        ("{from: b, start: now}", "second_opinion.start must be after or with, not 'now'"),
        ("{from: b, form: c}", "unknown key 'form' in second_opinion; did you mean 'from'?"),
        (
            "{from: b, start: with, when: {confidence: {below: 0.5}}}",
            "second_opinion.when looks at the reply, which is not there yet where start is `with`",
        ),
        (
            "{from: b, when: {confidence: {lowest_share: 0.5}}}",
            "unknown key 'lowest_share' in second_opinion.when.confidence; valid keys: below, "
            "at_least, between",
        ),
        ("[b]", "second_opinion must be a mapping, not a list"),
    ],
)
def test_a_wrong_one_is_refused(opinion: str, problem: str) -> None:
    """A wrong second opinion is refused with its line and the problem."""
    with pytest.raises(InvalidDocumentError) as caught:
        policy(opinion, UNSURE)
    assert str(caught.value).startswith(f"p.yaml:4: {problem}")


def test_near_threshold_needs_a_threshold() -> None:
    """`near_threshold` is refused if no rule has a threshold."""
    with pytest.raises(InvalidDocumentError, match="no rule has a threshold of confidence"):
        policy("{from: b, when: near_threshold}", "{name: t, when: {tools: any}, then: hold}")


def test_bands_lie_around_thresholds() -> None:
    """Bands reach from 1.8 below to 0.9 above a threshold in log-odds; touching ones are merged."""
    [band] = bands_around([0.5])
    assert math.log(band.low / (1 - band.low)) == pytest.approx(-1.8, abs=0.05)
    assert math.log(band.high / (1 - band.high)) == pytest.approx(0.9, abs=0.05)
    assert len(bands_around([0.5, 0.6])) == 1
    assert len(bands_around([0.02, 0.95])) == 2


def test_a_certified_threshold_moves_the_band() -> None:
    """A certificate moves the band to the certified threshold."""
    sure = "{name: sure, when: {confidence: {max_error: 0.05}}, then: deliver}"
    text = f"version: 1\nname: p\ncertificate: c.json\nrules: [{sure}]\ndefault: hold\n"
    plain = parse_policy(f"{text}second_opinion: {{from: b, when: near_threshold}}\n", "p.yaml")
    assert plain.second_opinion is not None
    assert not plain.second_opinion.is_wanted(Facts(0.85, "m"))
    grant = Grant(0.9, 0.05, 0.95, 100, 80, 0, "c@1")
    with_grant = with_certificate(plain, Certificate((grant,), "2099-01-01")).second_opinion
    assert with_grant is not None
    assert [with_grant.is_wanted(Facts(c, "m")) for c in (0.5, 0.85, 0.97)] == [False, True, False]


def test_a_reply_without_a_score_wants_no_opinion() -> None:
    """No opinion is wanted on a reply without a score."""
    assert not wanted("{from: b}").is_wanted(Facts(None, "m"))


def test_the_answering_model_is_called_last() -> None:
    """The model that answered is called only after the others."""
    assert wanted("{from: [a, b, c], n: 3}").models_for({"a"}) == ("b", "c", "b")
    assert wanted("{from: a}").models_for({"a"}) == ("a",)


def recorded(confidence: float, label: bool, *, alone: float | None = None) -> Exchange:
    opinions = () if alone is None else ("agree",)
    name = "c@1" if alone is None else KNOWING
    by = None if alone is None else "c@1"
    facts = Facts(
        confidence, "m", calibrator=name, alone=alone, alone_calibrator=by, opinions=opinions
    )
    return Exchange(facts, label)


EXCHANGES = [
    recorded(0.7, True, alone=0.45),
    recorded(0.3, False, alone=0.55),
    recorded(0.95, True),
    recorded(0.1, False),
]


def test_replay_uses_recorded_opinions() -> None:
    """A replay uses recorded opinions only for a policy that asks for opinions."""
    asking = policy("{from: b, when: {confidence: {between: [0.4, 0.6]}}}", UNSURE)
    plain = parse_policy(f"version: 1\nname: q\ndefault: deliver\nrules: [{UNSURE}]\n", "q.yaml")
    found = replay(asking, EXCHANGES, before=plain)
    assert found.before is not None
    assert (found.after.delivered, found.before.delivered) == (2, 2)
    assert (found.after.opinions, found.after.unanswered, found.after.delivered_alone) == (2, 0, 2)
    assert (found.after.errors.wrong, found.before.errors.wrong) == (0, 1)
    assert "second opinions about 2 replies (0.50 calls a reply)" in str(found)


def test_replay_counts_unknown_opinions() -> None:
    """A replay says for how many replies the opinions are unknown."""
    found = replay(
        policy("{from: b, n: 2}", UNSURE, more="costs: {second_opinion: 0.5}\n"), EXCHANGES
    )
    assert (found.after.opinions, found.after.unanswered, found.after.cost) == (4, 2, 4.0)
    assert "what they say about 2 is not known" in str(found)


def test_escalation_opinions_are_no_second_opinion() -> None:
    """A policy without opinions is judged by the number without them, and its calibrator."""
    plain = parse_policy("{version: 1, name: q, default: deliver}", "q.yaml")
    facts = facts_known_to(plain, EXCHANGES[0].facts).facts
    assert (facts.confidence, facts.calibrator, facts.opinions) == (0.45, "c@1", ())


def test_facts_of_opinions_survive_the_record() -> None:
    """Facts of opinions survive being written as values and read."""
    facts = EXCHANGES[0].facts
    assert facts_from_values(facts_as_values(facts), "here") == facts


def test_the_sentence_says_whom_when_and_how_long() -> None:
    """`pinocchio check` says whom it asks, about what, and how long it waits."""
    found = str(wanted("{from: b, when: {confidence: {between: [0.3, 0.9]}}}", UNSURE))
    assert found == (
        "asks b for a second opinion about replies whose confidence is from 0.3 below 0.9, after "
        "their score, waiting at most 20 s"
    )
