"""Studies of the models whose replies are trained on: growing pools, single sources (K02, K03).

Sources are the models with the most rows to train on that also have rows to judge, the most capable
first. A pool is fitted once; each model it is judged on has an entry, and all of them a mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import check_questions
from calibrator.lab.studies.studies import MIN_JUDGED, Fit, Study, StudyEntry, entry_of
from calibrator.rows.groups import printable_name
from calibrator.rows.rows import Row

SourcesName = Literal["growing-sources", "single-sources"]
POOLS = (4, 5, 7)  # numbers of sources in K02, the most capable ones first
SINGLE = 3  # number of sources in K03
MEAN = "mean over"


def run_sources(
    name: SourcesName,
    method: str,
    fit: Fit,
    train: Sequence[Row],
    test: Sequence[Row],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Study:
    """Fit each pool of models and judge it; return the study.

    In `growing-sources` (K02) pools are the 4, 5 and 7 most capable models, judged on models
    outside all pools; in `single-sources` (K03) each of three models alone, judged on the other
    two, and all three. `progress` gets the number of pools done and the total. Raises JudgingError
    where too few models have replies, or a question is in both `train` and `test`.
    """
    check_questions(train, test)
    sources, targets = _models(train, test, max(POOLS) if name == "growing-sources" else SINGLE)
    pools: list[tuple[str, list[str], list[str]]] = []
    if name == "growing-sources":
        pools = [(f"the {n} most capable", sources[:n], targets) for n in POOLS]
    else:
        for one in sources:
            others = [each for each in sources if each != one]
            pools.append((f"{printable_name(one)} alone", [one], others))
        pools.append(("all three", sources, sources))
    rows, entries = [*train, *test], list[StudyEntry]()
    for done, (label, pool, judged_on) in enumerate(pools):
        progress(done, len(pools))
        entries += _pool(fit, rows, len(train), label, pool, judged_on)
    progress(len(pools), len(pools))
    return Study(name, method, entries)


def _models(train: Sequence[Row], test: Sequence[Row], count: int) -> tuple[list[str], list[str]]:
    """Return (`count` models to train on, the most capable first, other models to judge).

    Both need `MIN_JUDGED` test rows, right and wrong ones; those to train on have the most training
    rows. Capable means a high share of right test rows; the others are sorted by name. Raises
    JudgingError for fewer than `count`.
    """
    learnt = Counter(row.model for row in train if row.model)
    labels: dict[str, list[int]] = {}
    for row in test:
        if row.model:
            labels.setdefault(row.model, []).append(row.correct or 0)
    judged = {
        n for n, each in labels.items() if len(each) >= MIN_JUDGED and 0 < sum(each) < len(each)
    }
    most = [name for name, _ in learnt.most_common() if name in judged][:count]
    if len(most) < count:
        raise JudgingError(f"{count} models with {MIN_JUDGED} rows to judge are needed")
    others = sorted(judged - set(most))
    capable = sorted(most, key=lambda name: (-float(np.mean(labels[name])), name))
    return capable, others


def _pool(
    fit: Fit,
    rows: Sequence[Row],
    trained: int,
    label: str,
    pool: Sequence[str],
    targets: Sequence[str],
) -> list[StudyEntry]:
    """Fit on the replies of the models in `pool`; return an entry for each target, and their mean.

    `rows` are `trained` training rows, then test rows. The mean's entry has the mean AUROC, without
    an interval, and the other figures of all judged rows together. Raises JudgingError without
    targets.
    """
    if not targets:
        raise JudgingError("every model is a source; none is left to judge")
    fitted = np.array([i for i in range(trained) if rows[i].model in pool], dtype=np.int64)
    judged = np.array([i for i in range(trained, len(rows)) if rows[i].model in targets])
    found, entries = fit(fitted, judged), []
    for target in targets:
        at = np.array([n for n, i in enumerate(judged) if rows[i].model == target])
        target_rows = [rows[i] for i in judged[at]]
        entries.append(
            entry_of(f"{label}, on {printable_name(target)}", len(fitted), target_rows, found[at])
        )
    mean = float(np.mean([each.auroc for each in entries]))
    whole = entry_of(label, len(fitted), [rows[i] for i in judged], found)
    named = f"{label}, {MEAN} {len(targets)} models"
    return [*entries, replace(whole, label=named, auroc=mean, low=float("nan"), high=float("nan"))]
