"""The scoring server on Ray Serve: replicas on a cluster, as many as the load asks for.

    serve deploy deploy/ray/serve_config.yaml

Each replica is a process with the calibrator loaded once, and speaks the words of
`proxy/scoring/engines/scorer_protocol.py` to `calibrator.engine: {kind: scorer}`. `args` are the
sections of proxy.yaml that a scoring server reads; Ray's own options of the deployment `scorer`
stand in the same file. A request whose replica dies is answered with an error, never with a number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.serve import Application

from calibrator import (
    CalibratorError,
    Item,
    Scorer,
    Ticket,
    load_scorer,
    opinion_of,
    reads_images,
    reads_tool_use,
    score_tickets,
)
from proxy.config.engines import InProcess
from proxy.config.sections import CalibratorConfig, Config
from proxy.errors import ExitStatus, StartupError
from proxy.scoring.server.app import ScoringApp, check_scoring_server
from proxy.wire.http import ASGIApplication, Receive, Scope, Send

SECTIONS = {"calibrator", "limits", "scorer"}
BATCH_CHARACTERS = 16_000  # of a batch after padding; what a scorer reads of an item is less
ITEM_CHARACTERS = 3_000  # more of an item is cut, or costs no more
CANARY = Item("warm-up", "warm-up")
TOLERANCE = 0.01  # of the canary's score, whatever it is batched with


def padded_characters(items: Sequence[Item]) -> int:
    """What a batch costs: as many rows as items, each as long as the longest."""
    longest = max(len(item.question) + len(item.answer) for item in items)
    return len(items) * (min(longest, ITEM_CHARACTERS) + 1)


class ServeQueue:
    """Stands before the calibrator where `Scoring` does in other processes.

    It waits for nobody: what arrives while a batch is computed forms the next one.
    """

    is_ready = True

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self.reads_images = reads_images(scorer)
        self.reads_tool_use = reads_tool_use(scorer)
        self.opinion = opinion_of(scorer)
        self._scorer = scorer

    def start(self) -> None:
        """The calibrator is there before its queue."""

    def close(self) -> None:
        """Ray Serve lets requests end before it stops a replica."""

    async def tickets(self, items: Sequence[Item]) -> list[Ticket]:
        """Each item's, finished."""
        return list(await asyncio.gather(*(self._ticket(item) for item in items)))

    @serve.batch(
        max_batch_size=BATCH_CHARACTERS,
        batch_wait_timeout_s=0,
        batch_size_fn=padded_characters,
    )
    async def _ticket(self, items: list[Item]) -> list[Ticket]:
        tickets = [Ticket(item, 0) for item in items]
        await asyncio.to_thread(score_tickets, self._scorer, tickets)
        return tickets


class Entry:
    """The ASGI application of whatever replica this process is."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # the replica's own begins earlier and ends later
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        replica: Any = serve.get_replica_context().servable_object
        await replica.http(scope, receive, send)


class Replica:
    """One calibrator; made and called by Ray Serve."""

    def __init__(self, args: dict[str, Any]) -> None:
        config = configured(args)  # here, for secrets stand in this machine's environment
        scorer = self.load(config.calibrator)
        self._canary_score = scorer.score_batch([CANARY])[0].score
        self._queue = ServeQueue(scorer)
        self.http: ASGIApplication = ScoringApp(config, self._queue, is_open=True)

    def load(self, config: CalibratorConfig) -> Scorer:
        """On one thread, as the deployment asks for one core, unless told otherwise."""
        return load_scorer(config.checkpoint, config.device, threads=config.threads or 1)

    async def check_health(self) -> None:
        """Raises where the calibrator fails, or says something else than when it was loaded; Ray
        Serve then puts another replica in this one's place."""
        (ticket,) = await self._queue.tickets([CANARY])
        score = ticket.result().score
        if not abs(score - self._canary_score) <= TOLERANCE:  # nor is NaN
            raise CalibratorError(f"a score was {self._canary_score} and is {score} now")


def configured(args: dict[str, Any]) -> Config:
    """The configuration of a replica; raises ValueError or StartupError with what is wrong."""
    if unknown := sorted(args.keys() - SECTIONS):
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT,
            f"unknown argument {unknown[0]!r}; there are {', '.join(sorted(SECTIONS))}",
        )
    config = Config.model_validate(args)
    if not isinstance(config.calibrator.engine, InProcess):
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT,
            "replicas compute scores themselves; remove calibrator.engine",
        )
    check_scoring_server(config, "127.0.0.1")  # without a token only this machine is answered
    return config


SCORER: serve.Deployment = serve.deployment(
    name="scorer",
    ray_actor_options={"num_cpus": 1},
    autoscaling_config={"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 16},
    max_ongoing_requests=64,
    health_check_period_s=10,
    health_check_timeout_s=30,
    graceful_shutdown_timeout_s=20,
)(serve.ingress(Entry())(Replica))


def app(args: dict[str, Any]) -> Application:
    """For `import_path: proxy.ray_serve:app`."""
    configured(args)
    return SCORER.bind(args)
