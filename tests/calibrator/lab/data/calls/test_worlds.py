"""Scenes of our own: right and wrong by rule, without anything of the labelled calls."""

from __future__ import annotations

import json
import random
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from calibrator.lab.data.calls import changes, contraries, disguises, plots, stages, worlds
from calibrator.lab.data.calls.contraries import commands
from calibrator.lab.data.calls.domains import DOMAINS
from calibrator.lab.data.calls.stages import TWISTS, Scene
from calibrator.lab.data.calls.worlds import scenes
from calibrator.readers.calls.reading.values import leaves
from tests.running.live_proxy import ROOT

NAMES = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
WORDS = re.compile(r"[^\W\d_]+")
SHINGLE = 5
CALENDAR = re.compile(r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April"
                      r"|June|July|August|September|October|November|December")  # fmt: skip


@cache
def played() -> tuple[Scene, ...]:
    """Return 660 scenes."""
    return tuple(scenes(660, 11))


def test_the_same_seed_gives_the_same_scenes() -> None:
    """The same seed gives the same scenes, another seed others."""
    assert list(scenes(40, 1)) == list(scenes(40, 1))
    assert list(scenes(40, 1)) != list(scenes(40, 2))


def test_all_twists_and_domains_are_played() -> None:
    """Every twist has right and wrong replies, and every domain is played."""
    found: dict[str, set[int]] = defaultdict(set)
    for scene in played():
        found[scene.twist].add(scene.correct)
    assert found.keys() == set(TWISTS)
    assert all(labels == {0, 1} for labels in found.values())
    assert {scene.domain for scene in played()} == {domain.name for domain in DOMAINS}


def test_the_rule_of_a_state_is_there_where_it_is_at_stake_and_sometimes_else() -> None:
    """The rule of a state is in all scenes about it and in about a third of the others."""
    domain, write = next((d, w) for d in DOMAINS for w in d.writes if w.state)
    shares = {}
    for twist in ("state", "plain"):
        made = [stages.make_stage(domain, write, random.Random(seed)) for seed in range(200)]
        for stage in made:
            stages.add_rules(stage, twist)
        shares[twist] = sum(write.state[1] in " ".join(stage.rules) for stage in made) / 200
    assert shares["state"] == 1
    assert 0.15 < shares["plain"] < 0.45


def test_calls_are_well_formed() -> None:
    """Each call is of an offered tool, with exactly its parameters in their types."""
    types = {"string": str, "integer": int, "number": (int, float)}
    for scene in played():
        offered = {t["function"]["name"]: t["function"]["parameters"] for t in scene.used.tools}
        for message in [*scene.used.messages, scene.used.message]:
            for call in message.get("tool_calls") or ():
                takes = offered[call["function"]["name"]]["properties"]
                arguments = json.loads(call["function"]["arguments"])
                assert arguments.keys() == takes.keys(), scene
                for name, value in arguments.items():
                    assert isinstance(value, types[takes[name]["type"]]), (scene.twist, name)


def test_a_drawn_value_is_of_its_kind() -> None:
    """A drawn value is of its kind: dates before or after today, amounts within their span."""
    today, rng = date(2031, 7, 7), random.Random(1)
    for _ in range(50):
        assert date.fromisoformat(stages.drawn_value("date-", today, rng)) < today
        assert date.fromisoformat(stages.drawn_value("date+", today, rng)) > today
        assert time.fromisoformat(stages.drawn_value("time", today, rng)).hour in range(8, 18)
        assert stages.drawn_value("count 2-5", today, rng) in range(2, 6)
        assert 20 <= stages.drawn_value("money 20-30", today, rng) < 31
        assert stages.drawn_value("open|paid", today, rng) in ("open", "paid")


@pytest.mark.parametrize("twist", ["limit", "state", "late", "confirm", "again", "weekday"])
def test_a_wrong_reply_differs_in_one_respect(twist: str) -> None:
    """A wrong reply differs from a right one either in the call or in the conversation."""
    by_group: dict[str, list[Scene]] = defaultdict(list)
    for scene in played():
        if scene.twist == twist:
            by_group[scene.group].append(scene)
    assert by_group
    for each in by_group.values():
        right, wrong = sorted(each, key=lambda scene: -scene.correct)[:2]
        is_same_call = _call(right) == _call(wrong)
        is_same_past = right.used.messages == wrong.used.messages
        assert is_same_call != is_same_past or twist in ("state", "late")


def _call(scene: Scene) -> Any:
    return scene.used.message["tool_calls"][0]["function"]


# --- the labelled calls are a test --------------------------------------------------------------


def labelled_calls() -> list[dict[str, Any]]:
    """Return the rows of the example, which no training may use."""
    return list(runpy.run_path(str(ROOT / "examples/agents/labelled_calls.py"))["rows"]())


def shingles(text: str) -> set[str]:
    """Return the runs of five consecutive words, without figures."""
    words = WORDS.findall(text.lower())
    return {" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)}


def texts(messages: list[Any]) -> Iterator[str]:
    for message in messages:
        yield message.get("content") or ""


def values(messages: list[Any]) -> Iterator[str]:
    """Yield the texts in arguments of calls, in lower case."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            for _, value in leaves(json.loads(call["function"]["arguments"])):
                if isinstance(value, str) and re.search(r"[^\W\d_]{3}", value):
                    yield value.lower()


def test_nothing_that_is_trained_on_is_in_the_labelled_calls() -> None:
    """No tool, value, name and run of five words is in both scenes and labelled calls."""
    own = labelled_calls()
    theirs = [[*row["messages"], row["response"]] for row in own]
    made_up = [*played(), *commands(200, 11)]
    ours = [[*scene.used.messages, scene.used.message] for scene in made_up]
    tools = [
        {t["function"]["name"] for t in each}
        for each in (
            [t for row in own for t in row["tools"]],
            [t for s in made_up for t in s.used.tools],
        )
    ]
    assert not tools[0] & tools[1]
    assert not {v for m in theirs for v in values(m)} & {v for m in ours for v in values(m)}
    labelled_text, made = (
        " \n ".join(t for m in both for t in texts(m)) for both in (theirs, ours)
    )
    named = set(NAMES.findall(labelled_text)) & set(NAMES.findall(made))
    assert {name for name in named if not CALENDAR.fullmatch(name)} == set()
    sources = [
        Path(str(m.__file__)) for m in (changes, contraries, disguises, plots, stages, worlds)
    ]
    written = [
        path.read_text() for path in (*sources, ROOT / "calibrator/lab/data/calls/domains.yaml")
    ]
    described = [t["function"]["description"] for row in own for t in row["tools"]]
    common = shingles(f"{labelled_text} {' '.join(described)}")
    assert common & shingles(f"{made} {' '.join(written)}") == set()


def test_no_domain_of_ours_is_one_of_theirs() -> None:
    """No domain or record of ours is in the name of a labelled tool."""
    about = {word for row in labelled_calls() for t in row["tools"]
             for word in t["function"]["name"].split("_")}  # fmt: skip
    records = {domain.record for domain in DOMAINS} | {domain.name for domain in DOMAINS}
    assert about & records == set()
