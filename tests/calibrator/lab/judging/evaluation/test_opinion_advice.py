"""Second opinions on labelled replies: their gain, where to ask, and a cascade's accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from calibrator import Item, Score
from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.drawn_others import draw_others
from calibrator.lab.judging.evaluation.opinion_advice import WANTED, advise_opinion
from calibrator.lab.studies.cascade_study import study_cascade
from calibrator.rows.rows import Row, parse_row
from pinocchio.commands import cli
from policies import parse_policy
from tests.builders.shelf_rows import shelf_rows

ABLE = {"ann": 0.5, "bob": 0.6, "cleo": 0.9}


class Comparing:
    """A scorer that raises a number for equal other replies and lowers it for different ones."""

    name, opinion = "comparing@1", "comparing@1+opinion@1"

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
        return [self._moved(i, s) for i, s in zip(items, scores, strict=True)]

    def _moved(self, item: Item, score: Score) -> Score:
        same = sum(other.answer == item.answer for other in item.others)
        moved = score.confidence + 0.3 * same - 0.1 * (len(item.others) - same)
        return replace(score, confidence=min(0.999, max(0.001, moved)), alone=score.confidence)

    def ability(self, model: str | None) -> float:
        return ABLE.get(model or "", 0.0)


class Deaf(Comparing):
    name, opinion = "deaf@1", ""


def rows(count: int = 400) -> list[Row]:
    return [parse_row(raw) for raw in shelf_rows(count, 5, ABLE)]


def alone(found: Sequence[Row]) -> list[Score]:
    """Return numbers that know a little of the label: three steps from 0.4 to 0.8."""
    return [
        Score(value, value)
        for at, row in enumerate(found)
        for value in (0.4 + 0.2 * ((at * 7 + (row.correct or 0) * 2) % 3),)
    ]


def test_the_band_gives_most_of_the_gain_for_fewer_calls() -> None:
    """The advice is the cheapest band with most of the gain, judged on other rows."""
    found = rows(2_000)
    advice = advise_opinion(Comparing(), found, alone(found), max_error=0.1)
    assert advice.band is not None
    assert advice.band.calls < 1
    assert advice.gain(advice.band) > WANTED - 0.1
    assert advice.everybody.kept > advice.nobody.kept + 0.1
    assert [band.calls for band in advice.bands] == sorted(band.calls for band in advice.bands)
    assert (advice.nobody.calls, advice.everybody.calls) == (0, 1)
    assert advice == advise_opinion(Comparing(), found, alone(found), max_error=0.1)


def test_opinions_that_say_nothing_are_not_advised() -> None:
    """If opinions move no number, no band is advised."""

    class Silent(Comparing):
        def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
            return list(scores)

    found = rows()
    assert advise_opinion(Silent(), found, alone(found)).band is None


def test_too_few_others_are_refused() -> None:
    """Too few other replies, or a calibrator that reads none, are refused."""
    found = rows(20)
    with pytest.raises(JudgingError, match="60 labelled replies have another reply"):
        advise_opinion(Comparing(), found, alone(found))
    with pytest.raises(JudgingError, match="another reply by dora to the same question"):
        advise_opinion(Comparing(), found, alone(found), model="dora")
    with pytest.raises(JudgingError, match="does not read other replies"):
        advise_opinion(Deaf(), found, alone(found))


def test_others_are_of_the_chosen_models() -> None:
    """Others are of one model, of stronger ones, or the row's own."""
    found = rows(30)
    of_bob = draw_others(Comparing(), found, model="bob")
    assert {other.source_model for each in of_bob for other in each.item.others} == {"bob"}
    assert len(of_bob) == 60
    stronger = draw_others(Comparing(), found, is_stronger=True)
    for each in stronger:
        [other] = each.item.others
        assert ABLE[other.source_model or ""] > ABLE[each.item.source_model or ""]
    own = parse_row({**next(shelf_rows(1, 6)), "others": ["The answer is 1."]})
    [each] = draw_others(Comparing(), [own])
    assert [other.answer for other in each.item.others] == ["The answer is 1."]


def test_a_cascade_is_compared_with_the_strong_model() -> None:
    """A cascade's accuracy and calls rise with the threshold, beside the strong model alone."""
    found = rows()
    cascade = study_cascade(Comparing(), found, alone(found), "ann", "cleo")
    assert cascade.cheap_accuracy < 0.6
    assert cascade.strong_accuracy > 0.85
    assert [step.threshold for step in cascade.steps][-1] == 1.0
    calls = [step.calls for step in cascade.steps]
    assert calls == sorted(calls)
    assert calls[-1] == 1
    assert cascade.steps[-1].kept_95_knowing >= cascade.steps[-1].kept_95
    assert study_cascade(Comparing(), found, alone(found)).strong == "cleo"
    with pytest.raises(JudgingError, match="0 labelled questions in common"):
        study_cascade(Comparing(), found, alone(found), "ann", "dora")


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    found.write_text("".join(json.dumps(row) + "\n" for row in shelf_rows(60, 5, ABLE)))
    return found


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def test_advise_names_a_band_that_a_policy_takes(path: Path) -> None:
    """`advise --second-opinion` prints a line that a policy accepts."""
    done = run("advise", path, "--second-opinion", "--opinion-from", "cleo", "--price", "0.002")
    assert done.exit_code == 3, done.output
    line = done.stdout.splitlines()[-1]
    policy = parse_policy(f"version: 1\nname: p\ndefault: deliver\n{line.strip()}\n", "p.yaml")
    assert policy.second_opinion is not None
    assert policy.second_opinion.models == ("cleo",)
    assert "every reply" in done.stdout
    assert "per 1,000" in done.stdout
    assert "2.00" in done.stdout
    advice = json.loads(run("advise", path, "--second-opinion", "--json").stdout)
    assert advice["replies"] == 180
    assert advice["calibrator"].startswith("embedded@")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--opinion-from", "bob"], "--opinion-from goes with --second-opinion"),
        (["--second-opinion", "--max-error", "2"], "--max-error must be between 0 and 1, not 2"),
        (["--second-opinion", "--calibrator", "fake:0.5"], "fake:0.5 does not read other replies"),
        (["--second-opinion", "--scores", "x"], "--scores does not go with --second-opinion"),
    ],
)
def test_options_that_change_nothing_are_refused(
    path: Path, arguments: list[str], problem: str
) -> None:
    """An option without effect is refused with exit status 2."""
    done = run("advise", path, *arguments)
    assert done.exit_code == 2
    assert problem in " ".join(done.stderr.replace("│", " ").split())


def test_study_cascade_prints_both_models(path: Path, tmp_path: Path) -> None:
    """`study cascade` prints all thresholds and the strong model, and writes all figures."""
    output = tmp_path / "cascade.json"
    done = run("study", "cascade", path, "--cheap", "ann", "--strong", "cleo", "-o", output)
    assert done.exit_code == 0, done.output
    assert "ann, then cleo: 60 questions that both answered" in done.stdout
    assert "strong alone" in done.stdout
    assert len(json.loads(output.read_text())["steps"]) == 7
    wrong = run("study", "opinion", path, "--cheap", "ann")
    assert "--cheap and --strong go with the study `cascade`" in wrong.stderr
