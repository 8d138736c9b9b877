"""The scoring server on Ray Serve: its configuration, its replicas and their health."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from calibrator import CalibratorError, FakeScorer, Item, Score, Scorer, Ticket, score_tickets
from proxy.errors import StartupError
from tests.running.live_proxy import ROOT, WordScorer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own modules use what others deprecate
    from ray.serve.schema import ServeDeploySchema

    from proxy.scoring.server.ray_serve import BATCH_CHARACTERS, Replica, app, padded_characters


DEPLOY = ROOT / "deploy" / "ray"


def config_of(name: str) -> Any:
    """Return the Serve configuration in a file of deploy/."""
    document = yaml.safe_load((DEPLOY / name).read_text())
    return yaml.safe_load(document["spec"]["serveConfigV2"]) if "spec" in document else document


@pytest.mark.parametrize("name", ["serve_config.yaml", "rayservice.yaml"])
def test_the_configuration_is_one_of_ray_serves(name: str) -> None:
    """The files in deploy/ have only keys that Ray Serve knows, and deploy this application."""
    config = config_of(name)
    read = ServeDeploySchema.model_validate(config)
    (application,) = read.applications
    assert application.import_path == "proxy.scoring.server.ray_serve:app"
    deployment = app(application.args)._bound_deployment
    assert [each.name for each in application.deployments] == [deployment.name]
    assert config == _only_known(read.model_dump(warnings=False), config)


def test_both_files_deploy_the_same() -> None:
    """The two files in deploy/ differ only in where the server listens."""
    first, second = map(config_of, ("serve_config.yaml", "rayservice.yaml"))
    assert first["applications"] == second["applications"]


def _only_known(read: Any, config: Any) -> Any:
    """Return the values that Ray Serve read, limited to the keys of the file."""
    if isinstance(config, dict):
        return {key: _only_known(read[key], value) for key, value in config.items() if key in read}
    if isinstance(config, list):
        return [_only_known(*pair) for pair in zip(read, config, strict=True)]
    return getattr(read, "value", read)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"upstreams": {}}, "unknown argument 'upstreams'; there are calibrator, limits, scorer"),
        ({"calibrator": {"checkpiont": "embedded"}}, "checkpiont"),
        ({"calibrator": {"checkpoint": "none"}}, "nothing to score with"),
        (
            {"calibrator": {"engine": {"kind": "scorer", "base_url": "http://127.0.0.1:1"}}},
            "replicas compute scores themselves; remove calibrator.engine",
        ),
    ],
)
def test_bad_arguments_are_refused_before_start(args: dict[str, Any], message: str) -> None:
    """Arguments that make no sense are refused when the application is built."""
    with pytest.raises((StartupError, ValidationError), match=message):
        app(args)


def test_a_batch_costs_its_padding_too() -> None:
    """Each row of a batch costs the longest row's length, up to what a calibrator reads."""
    short, long, endless = (Item("q", "x" * n) for n in (9, 99, 10**6))
    assert padded_characters([short]) == 11
    assert padded_characters([short, long, short]) == 3 * padded_characters([long])
    assert padded_characters([endless]) < BATCH_CHARACTERS / 4, "an item always fits"


@dataclass
class DirectQueue:
    """Replaces Ray Serve's batches, which exist only in a replica."""

    scorer: Scorer

    async def tickets(self, items: Sequence[Item]) -> list[Ticket]:
        tickets = [Ticket(item, 0) for item in items]
        score_tickets(self.scorer, tickets)
        return tickets


class BrokenScorer(WordScorer):
    """A calibrator whose device is gone."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        raise CalibratorError("the device is gone")


@pytest.fixture(scope="module")
def replica() -> Replica:
    return Replica({"calibrator": {"checkpoint": "fake:0.5"}})


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        (BrokenScorer(), "the device is gone"),
        (FakeScorer(0.9), "a score was 0.5 and is 0.9 now"),
        (FakeScorer(float("nan")), "is nan now"),
    ],
)
async def test_a_broken_calibrator_is_not_healthy(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, scorer: Scorer, message: str
) -> None:
    """The check fails if a calibrator raises, or gives its first text another score."""
    monkeypatch.setattr(replica, "_queue", DirectQueue(scorer))
    with pytest.raises(CalibratorError, match=message):
        await replica.check_health()


async def test_a_calibrator_that_says_the_same_is_healthy(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that batches move a little is no fault."""
    monkeypatch.setattr(replica, "_queue", DirectQueue(FakeScorer(0.502)))
    await replica.check_health()
