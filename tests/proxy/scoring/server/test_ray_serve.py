"""The scoring server on Ray Serve: what a replica is made from, and when it is healthy."""

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
    """The files in deploy/ have no key that Ray Serve does not know, and deploy what is here."""
    given = config_of(name)
    read = ServeDeploySchema.model_validate(given)
    (application,) = read.applications
    assert application.import_path == "proxy.scoring.server.ray_serve:app"
    deployment = app(application.args)._bound_deployment
    assert [each.name for each in application.deployments] == [deployment.name]
    assert given == _only_known(read.model_dump(warnings=False), given)


def test_both_files_deploy_the_same() -> None:
    """A cluster of Kubernetes differs from another one in where it listens."""
    first, second = map(config_of, ("serve_config.yaml", "rayservice.yaml"))
    assert first["applications"] == second["applications"]


def _only_known(read: Any, given: Any) -> Any:
    """Return the values that were read, limited to the keys of what was given and known."""
    if isinstance(given, dict):
        return {key: _only_known(read[key], value) for key, value in given.items() if key in read}
    if isinstance(given, list):
        return [_only_known(*pair) for pair in zip(read, given, strict=True)]
    return getattr(read, "value", read)


@pytest.mark.parametrize(
    ("args", "told"),
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
def test_mistakes_are_told_before_a_replica_is_started(args: dict[str, Any], told: str) -> None:
    """Arguments that make no sense are refused where the application is built."""
    with pytest.raises((StartupError, ValidationError), match=told):
        app(args)


def test_a_batch_costs_its_padding_too() -> None:
    """Each row is as long as the longest, as far as a calibrator reads it."""
    short, long, endless = (Item("q", "x" * n) for n in (9, 99, 10**6))
    assert padded_characters([short]) == 11
    assert padded_characters([short, long, short]) == 3 * padded_characters([long])
    assert padded_characters([endless]) < BATCH_CHARACTERS / 4, "an item always fits"


@dataclass
class DirectQueue:
    """Stands for Ray Serve's batches, which exist in a replica only."""

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
    ("scorer", "told"),
    [
        (BrokenScorer(), "the device is gone"),
        (FakeScorer(0.9), "a score was 0.5 and is 0.9 now"),
        (FakeScorer(float("nan")), "is nan now"),
    ],
)
async def test_a_broken_calibrator_is_not_healthy(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, scorer: Scorer, told: str
) -> None:
    """A calibrator that fails, or gives its first text another score, makes the check fail."""
    monkeypatch.setattr(replica, "_queue", DirectQueue(scorer))
    with pytest.raises(CalibratorError, match=told):
        await replica.check_health()


async def test_a_calibrator_that_says_the_same_is_healthy(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches move a score a little; that is no fault."""
    monkeypatch.setattr(replica, "_queue", DirectQueue(FakeScorer(0.502)))
    await replica.check_health()
