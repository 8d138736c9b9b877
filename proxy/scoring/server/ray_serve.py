"""The scoring server on Ray Serve: replicas on a cluster, as many as the load needs.

    serve deploy deploy/ray/serve_config.yaml

Each replica is a process with the calibrator loaded once. It speaks the protocol of
`proxy/scoring/engines/scorer_protocol.py` to `calibrator.engine: {kind: scorer}`. `args` are the
sections of proxy.yaml that a scoring server reads; Ray's own options of the deployment `scorer` are
in the same file. A request whose replica dies is answered with an error, never with a score.
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
from proxy.config.sections import CalibratorConfig, Config
from proxy.config.settings.engines import InProcess
from proxy.errors import ExitStatus, StartupError
from proxy.http.wire.http import ASGIApplication, Receive, Scope, Send
from proxy.scoring.server.app import ScoringApp, check_scoring_server

SECTIONS = {"calibrator", "limits", "scorer"}
BATCH_CHARACTERS = 16_000  # of a batch after padding
ITEM_CHARACTERS = 3_000  # of an item; longer ones are cut, or cost no more
CANARY = Item("warm-up", "warm-up")
TOLERANCE = 0.01  # of the canary's score, which depends a little on its batch


def padded_characters(items: Sequence[Item]) -> int:
    """Return a batch's cost in characters: as many rows as items, each as long as the longest."""
    longest = max(len(item.question) + len(item.answer) for item in items)
    return len(items) * (min(longest, ITEM_CHARACTERS) + 1)


class ServeQueue:
    """The queue before the calibrator, which other processes have in `Scoring`.

    It waits for no further items: those that arrive while a batch is computed form the next one.
    """

    is_ready = True

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self.reads_images = reads_images(scorer)
        self.reads_tool_use = reads_tool_use(scorer)
        self.opinion = opinion_of(scorer)
        self._scorer = scorer

    def start(self) -> None:
        """Do nothing: the calibrator is loaded before its queue."""

    def close(self) -> None:
        """Do nothing: Ray Serve lets requests end before it stops a replica."""

    async def tickets(self, items: Sequence[Item]) -> list[Ticket]:
        """Return a finished ticket for each item, in their order."""
        return list(await asyncio.gather(*(self._ticket(item) for item in items)))

    @serve.batch(
        max_batch_size=BATCH_CHARACTERS,
        batch_wait_timeout_s=0,
        batch_size_fn=padded_characters,
    )
    async def _ticket(self, items: list[Item]) -> list[Ticket]:
        """Score a batch of items on a thread, and return their finished tickets in order.

        Ray Serve collects single items into the list, and gives each caller the ticket of its item.
        """
        tickets = [Ticket(item, 0) for item in items]
        await asyncio.to_thread(score_tickets, self._scorer, tickets)
        return tickets


class Entry:
    """The ASGI application of this process's replica."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the replica of this process.

        Start and end of the server are only acknowledged.
        """
        if scope["type"] == "lifespan":  # the replica itself begins earlier and ends later
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        replica: Any = serve.get_replica_context().servable_object
        await replica.http(scope, receive, send)


class Replica:
    """One calibrator; made and called by Ray Serve."""

    def __init__(self, args: dict[str, Any]) -> None:
        config = replica_config(args)  # on this machine, whose environment has the secrets
        scorer = self.load(config.calibrator)
        self._canary_score = scorer.score_batch([CANARY])[0].score
        self._queue = ServeQueue(scorer)
        self.http: ASGIApplication = ScoringApp(config, self._queue, is_open=True)

    def load(self, config: CalibratorConfig) -> Scorer:
        """Load the calibrator, on one thread by default: the deployment asks for one core."""
        return load_scorer(config.checkpoint, config.device, threads=config.threads or 1)

    async def check_health(self) -> None:
        """Check the calibrator's score of a fixed item; Ray Serve replaces a replica that raises.

        Raises CalibratorError where the score has changed since the start.
        """
        (ticket,) = await self._queue.tickets([CANARY])
        score = ticket.result().score
        if not abs(score - self._canary_score) <= TOLERANCE:  # true for NaN, too
            raise CalibratorError(f"a score was {self._canary_score} and is {score} now")


def replica_config(args: dict[str, Any]) -> Config:
    """Return the configuration of a replica; raises ValueError or StartupError with the mistake."""
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
    """Return the application for `import_path: proxy.scoring.server.ray_serve:app`.

    Raises ValueError or StartupError.
    """
    replica_config(args)
    return SCORER.bind(args)
