"""Audited replies with their content and verdicts, put into a store by the store's own writers.

    record(url, rows, load_scorer("embedded"), share=0.1)

`rows` are labelled rows (question, response, model, correct); each becomes a chat completion that
was delivered, drawn with probability `share` and labelled. The other replies, which
the drawn ones represent, are recorded without content.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrator.recalibration.curves import Recalibration
from calibrator.rows.rows import parse_row
from calibrator.rows.scores import score_items
from calibrator.scorer import Scorer
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.writer import COLUMNS, Records
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import AUDIT, HeldReply

DAY_S = 86_400


def record(
    url: str,
    rows: Sequence[dict[str, Any]],
    scorer: Scorer,
    *,
    share: float = 1.0,
    days: float = 20.0,
    recalibration: Recalibration | None = None,
    kind: str = AUDIT,
    seed: int = 0,
) -> list[str]:
    """Record a scored exchange for each row and return the request ids in the order of the rows.

    The exchanges are spread over `days`; the last one is about two minutes old. Each is stored for
    review, as one of an audit of this `share` or as a held reply.
    """
    rng = np.random.default_rng(seed)
    parsed = [parse_row(row) for row in rows]
    scores = score_items(scorer, [row.item("served") for row in parsed])
    records = Records(url, max_queue=len(rows) + 1)
    audits = AuditWriter(url, max_queue=len(rows) + 1)
    records.open()
    now, ids = time.time(), []
    for at, (row, score) in enumerate(zip(parsed, scores, strict=True)):
        asked_at = now - days * DAY_S * (1 - at / len(rows)) - 120
        id = f"req_{int(asked_at * 1_000):012x}{rng.bytes(10).hex()}"
        ids.append(id)
        confidence, name = score.confidence, scorer.name
        if recalibration is not None:
            confidence = recalibration.apply_to(confidence, row.model, None)
            name += f"+{recalibration.name}"
        is_audit = kind == AUDIT
        values = {
            "request_id": id,
            "started_at": asked_at,
            "key_hash": "k",
            "path": "/v1/chat/completions",
            "upstream": "u",
            "model": row.model,
            "is_stream": 0,
            "status": 200,
            "confidence": confidence,
            "score": None if recalibration is None else score.confidence,
            "confidence_status": "scored",
            "action": "deliver" if is_audit else "hold",
            "policy": "p/default@1",
            "calibrator": name,
            "review_id": None if is_audit else f"chatcmpl-held-{id}",
            "total_ms": 1.0,
            "overhead_ms": 0.1,
            "facts": "[{}]",
        }
        records.add(tuple(values.get(column) for column in COLUMNS))
        audits.add(_held_reply(row, id, asked_at, confidence, name, share, kind))
    records.close()
    audits.close()
    assert records.shed == audits.shed == 0
    return ids


def _held_reply(
    row: Any, id: str, at: float, confidence: float, name: str, share: float, kind: str
) -> HeldReply:
    message = {"role": "assistant", "content": row.answer}
    reply = {"model": row.model, "choices": [{"index": 0, "message": message}]}
    request = {"model": row.model, "messages": [{"role": "user", "content": row.question}]}
    return HeldReply(
        id=f"audit_{id}" if kind == AUDIT else f"chatcmpl-held-{id}",
        key_hash="k",
        queue="audit",
        model=row.model or "",
        policy="",
        confidence=confidence,
        calibrator=name,
        question=row.question,
        reply=json.dumps(reply).encode(),
        request=json.dumps(request).encode(),
        path="/chat/completions",
        created_at=at,
        expires_at=at + 60 * DAY_S,
        kind=kind,
        request_id=id,
        share=share if kind == AUDIT else None,
    )


def label(url: str, ids: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Give each reply the verdict that its row has."""
    findings = VerdictStore(url)
    for id, row in zip(ids, rows, strict=True):
        findings.give_verdict(id, bool(row["correct"]), "ann")
    findings.close()
