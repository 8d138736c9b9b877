"""Models that the operator has rated like known ones, under the names that upstreams report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrator import Item, load_scorer
from proxy.scoring.renaming import model_renamer
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import ANSWERS, AnyUpstream

LIKE = {"gpt-6-sol": "gpt-5.6", "House": "gpt-4.1"}


@pytest.mark.parametrize(
    ("name", "rated_as"),
    [
        ("gpt-6-sol", "gpt-5.6"),
        ("openai/gpt-6-sol", "gpt-5.6"),
        ("GPT-6-Sol-2026-09-01", "gpt-5.6"),
        ("gpt-6-sol:free", "gpt-5.6"),
        ("gpt-6-sol@latest", "gpt-5.6"),
        ("house", "gpt-4.1"),
        ("gpt-6-sol-mini", "gpt-6-sol-mini"),
        ("gpt-6", "gpt-6"),
        ("", ""),
    ],
)
def test_a_name_is_found_as_upstreams_report_it(name: str, rated_as: str) -> None:
    """A name is found with owner, date, case or price added, but never for another variant."""
    assert model_renamer(LIKE)(name) == rated_as
    assert model_renamer({})(name) == name


@pytest.mark.parametrize("reported", ["gpt-6-sol", "gpt-6-sol-2026-09-01"])
def test_setting_renames_model_for_calibrator(tmp_path: Path, reported: str) -> None:
    """The reply is scored under the name from the configuration."""
    with AnyUpstream() as upstream:
        upstream.answer = Response(
            [json.dumps({**ANSWERS["chat"], "model": reported}).encode()], headers=JSON
        )
        like = {"models": {"gpt-6-sol": {"like": "gpt-5.6"}}}
        proxy = LiveProxy(upstream.base_url, tmp_path, calibrator=like)
        try:
            proxy.ask("Why?", "gpt-6-sol")
            assert proxy.scorer.seen[-1].source_model == "gpt-5.6"  # type: ignore[attr-defined]  # a WordScorer
        finally:
            proxy.stop()


def test_a_model_that_the_calibrator_lacks_is_rated_by_its_predecessor() -> None:
    """`like: gpt-5.6` helps although no checkpoint knows GPT-5.6, as it is rated like GPT-5.4."""
    names = (model_renamer(LIKE)("gpt-6-sol"), "gpt-5.4")
    scores = load_scorer("embedded").score_batch([Item("Why?", "Because.", name) for name in names])
    assert scores[0].confidence == scores[1].confidence
