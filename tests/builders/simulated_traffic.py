"""Traffic of past weeks in a real store, written by what the proxy writes it with.

    traffic = Traffic(folder, seed=1)
    traffic.pass_by(5_000, days=14, audit_share=0.04)
    traffic.label()                        # every audited reply gets its verdict
    traffic.run("recalibrate", "--from-store")

The clock is simulated: the traffic begins 28 days before now. What a question's answer is worth
(`truth`, its probability of being correct) is known here, so that errors of calibration can be
measured without noise. The calibrator doubles the true log-odds and adds a half: too sure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.loading import version_of
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import Recalibration, logit, sigmoid
from calibrator.recalibration.signals import SignalWeights
from calibrator.recalibration.versions import resolve_recalibrations
from calibrator.scorer import Signals
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.writer import COLUMNS, Records
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import AUDIT, HeldReply
from tests.running.live_proxy import run_cli

DAY_S = 86_400
CALIBRATOR = "fake:0.5"  # the configuration can name it; its scores are simulated
CONFIG = """
calibrator: {checkpoint: "CALIBRATOR", recalibration: recalibrations/current}
store: sqlite:///FOLDER/store.db
"""


def overconfident(truth: Floats) -> Floats:
    """Return the simulated calibrator's confidences for replies that are right with `truth`."""
    return np.asarray(sigmoid(2 * logit(truth) + 0.5))


def timid(truth: Floats) -> Floats:
    """Return the calibrator's confidences once it knows what others replied.

    They are the true log-odds less one and a half.
    """
    return np.asarray(sigmoid(logit(truth) - 1.5))


def usual_truth(rng: np.random.Generator, count: int) -> Floats:
    return rng.beta(3, 1.5, count)


def _corrected(
    recalibration: Recalibration | None, score: float, model: str, name: str
) -> tuple[float, str]:
    if recalibration is None:
        return float(score), name
    return recalibration.apply_to(score, model, None), f"{name}+{recalibration.name}"


def _judged(
    weights: SignalWeights | None,
    before: tuple[float, str, float | None, str],
    score: float,
    signals: Signals,
) -> tuple[float, str, float | None, str]:
    """Return the confidence, name, score and facts to record where a judge gave a verdict."""
    confidence, name, own, facts = before
    stage = name.partition("+platt@")[0]
    found = weights.weigh(score, stage, signals) if weights else None
    values = {**json.loads(facts)[0], "judged": signals.judged, "judge": signals.judge}
    if found is None:
        return confidence, name, own, json.dumps([values])
    values |= {"unaided": confidence, "unaided_calibrator": name}
    values |= {} if own is None else {"unaided_score": own}
    return found.confidence, found.calibrator, score, json.dumps([values])


class Traffic:
    """A month of a deployment, of which each call of `pass_by` lets some days pass."""

    def __init__(
        self, folder: Path, seed: int = 0, checkpoint: str = CALIBRATOR, url: str = ""
    ) -> None:
        """`url` is the store's; without one it is a file in the folder."""
        self.config = folder / "proxy.yaml"
        self.config.write_text(
            CONFIG.replace("FOLDER", str(folder)).replace("CALIBRATOR", checkpoint)
        )
        self.calibrator = version_of(checkpoint)
        self.opinion = f"{self.calibrator}+opinion@0a1b2c3d"
        self.url = url or f"sqlite:///{folder}/store.db"
        self.current = folder / "recalibrations" / "current"
        self.ids: list[str] = []  # of all replies, in order
        self._rng = np.random.default_rng(seed)
        self._now = time.time() - 28 * DAY_S
        self._unlabelled: dict[str, bool] = {}  # audited replies, and whether they are right

    def pass_by(
        self,
        count: int,
        days: float,
        *,
        audit_share: float = 0.0,
        truth: Callable[[np.random.Generator, int], Floats] = usual_truth,
        says: Callable[[Floats], Floats] = overconfident,
        model: str = "m",
        held: float = 0.0,
        heard: float = 0.0,
        judged: float = 0.0,
    ) -> None:
        """Store `count` replies, spread evenly over `days`; hold those less sure than `held`.

        For the share `heard`, the confidence takes account of a second opinion (`timid`), as its
        calibrator's name says. About the share `judged` has the answer of a judge, which changes
        the confidence where weights are promoted.
        """
        rng = self._rng
        records = Records(self.url, max_queue=count + 1)
        audits = AuditWriter(self.url, max_queue=count + 1)
        records.open()
        counting = resolve_recalibrations(self.current)
        recalibration = counting.alone
        worth = truth(rng, count)
        scores, right = says(worth), rng.random(count) < worth
        drawn = rng.random(count) < audit_share
        is_heard, knowing = rng.random(count) < heard, timid(worth)
        word = sigmoid(np.where(right, 1.2, -1.2) + rng.normal(0, 1.5, count))
        is_judged = rng.random(count) < judged
        step_s = days * DAY_S / count
        for at, (score, is_right, is_drawn) in enumerate(zip(scores, right, drawn, strict=True)):
            self._now += step_s
            confidence, name = _corrected(recalibration, score, model, self.calibrator)
            own, facts = float(score) if recalibration else None, "[{}]"
            if is_heard[at]:
                values_of = {"alone": confidence, "alone_calibrator": name, "opinions": ["agree"]}
                facts = json.dumps([values_of | ({} if own is None else {"alone_score": own})])
                with_others, score = counting.with_others, knowing[at]
                confidence, name = _corrected(with_others, score, model, self.opinion)
                own = float(score) if with_others else None
            if is_judged[at]:
                signals = Signals(float(word[at]), "j")
                confidence, name, own, facts = _judged(
                    counting.signals, (confidence, name, own, facts), float(score), signals
                )
            id = f"req_{int(self._now * 1_000):012x}{rng.bytes(10).hex()}"
            is_held = confidence < held
            self.ids.append(id)
            values = {
                "request_id": id,
                "started_at": self._now,
                "key_hash": "k",
                "path": "/v1/chat/completions",
                "upstream": "u",
                "model": model,
                "is_stream": 0,
                "status": 200,
                "confidence": confidence,
                "score": own,
                "confidence_status": "scored",
                "action": "hold" if is_held else "deliver",
                "policy": "p/default@1",
                "calibrator": name,
                "review_id": f"chatcmpl-held-{id}" if is_held else None,
                "total_ms": 1.0,
                "overhead_ms": 0.1,
                "facts": facts,
            }
            records.add(tuple(values.get(column) for column in COLUMNS))
            if is_drawn and not is_held:
                audits.add(self._audit(id, confidence, name, audit_share))
            if is_held or is_drawn:
                self._unlabelled[id] = bool(is_right)
        records.close()
        audits.close()
        assert records.shed == audits.shed == 0

    def _audit(self, id: str, confidence: float, calibrator: str, share: float) -> HeldReply:
        return HeldReply(
            id=f"audit_{id}",
            key_hash="k",
            queue="audit",
            model="m",
            policy="",
            confidence=confidence,
            calibrator=calibrator,
            question=f"question {id}",
            reply=b'{"choices":[]}',
            created_at=self._now,
            expires_at=self._now + 60 * DAY_S,
            kind=AUDIT,
            request_id=id,
            share=share,
        )

    def label(self, most: int | None = None) -> int:
        """Give up to `most` replies of the queue their verdicts; return how many got one."""
        findings = VerdictStore(self.url)
        ids = list(self._unlabelled)[:most]
        for id in ids:
            findings.give_verdict(id, self._unlabelled.pop(id), "ann")
        findings.close()
        return len(ids)

    def run(self, *arguments: str) -> Any:
        """Run `pinocchio ARGUMENTS --config ..`; return its process once it has ended."""
        return run_cli(*arguments, "--config", str(self.config))

    def run_json(self, *arguments: str) -> Any:
        """Return the JSON that `pinocchio ARGUMENTS --json` prints."""
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def calibration_error(self, truth: Floats) -> float:
        """Return the current confidences' calibration error, from the true probabilities.

        It is the mean distance from the truth over 15 bins, as in ECE.
        """
        confidences = overconfident(truth)
        if (found := resolve_recalibrations(self.current).alone) is not None:
            confidences = np.array([found.apply(float(score)) for score in confidences])
        which = np.clip(np.ceil(confidences * 15).astype(int) - 1, 0, 14)
        gaps = [abs(float((confidences - truth)[which == k].sum())) for k in range(15)]
        return sum(gaps) / len(truth)
