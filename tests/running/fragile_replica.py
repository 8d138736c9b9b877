"""The scoring server on Ray Serve with a calibrator that fails while a certain file exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application

from calibrator import CalibratorError, Item, Score, Scorer
from proxy.config.sections import CalibratorConfig
from proxy.scoring.server.ray_serve import Entry, Replica


@dataclass
class Fragile:
    scorer: Scorer
    broken: Path

    @property
    def name(self) -> str:
        return self.scorer.name

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if self.broken.exists():
            raise CalibratorError("the device is gone")
        return self.scorer.score_batch(items)


class FragileReplica(Replica):
    def __init__(self, args: dict[str, Any]) -> None:
        self.broken = Path(args.pop("broken"))
        super().__init__(args)

    def load(self, config: CalibratorConfig) -> Scorer:
        return Fragile(super().load(config), self.broken)


def app(args: dict[str, Any]) -> Application:
    deployment: serve.Deployment = serve.deployment(name="scorer")(
        serve.ingress(Entry())(FragileReplica)
    )
    return deployment.bind(args)
