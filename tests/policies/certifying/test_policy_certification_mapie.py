"""Certificates agree with MAPIE's, an independent implementation of Learn then Test.

MAPIE uses the same exact tail, but rounds the number of errors up from a share: where a share is
not exact it counts one error more. Its certificates are then a little stricter, never laxer. It has
one starting point, so it gets that point's part of delta.
"""

from __future__ import annotations

import numpy as np
import pytest
from mapie.risk_control import BinaryClassificationController

from policies import GRID, LabelledScore, certify
from policies.binomial import lower_tail
from policies.certifying.certification import starting_shares

MAX_ERROR, CONFIDENCE, LABELS = 0.1, 0.9, 800


@pytest.mark.filterwarnings("ignore")  # MAPIE warns about risks that are not monotone
def test_thresholds_and_p_values_are_mapies() -> None:
    """Tails equal MAPIE's, and its certified thresholds are certified here too.

    Thresholds are at most a little lower, as starting points hand on their parts of delta.
    """
    start = 1 - MAX_ERROR
    share = starting_shares(MAX_ERROR)[start]
    rng = np.random.default_rng(0)
    same_tails, lower = [], []
    for _ in range(30):
        confidences = rng.beta(0.7, 0.6, LABELS)
        right = (rng.random(LABELS) < confidences).astype(int)
        accepted = {t: int((confidences >= t).sum()) for t in GRID}
        grid = [t for t in GRID if t <= start]
        mapie = BinaryClassificationController(
            lambda p: np.c_[1 - p, p],
            "precision",
            target_level=1 - MAX_ERROR,
            confidence_level=1 - share * (1 - CONFIDENCE),
            list_predict_params=np.array(grid),
            fwer_method="fixed_sequence",
        ).calibrate(confidences, right)
        wrong = [int(((confidences >= t) & (right == 0)).sum()) for t in grid]
        counts = [(k, accepted[t]) for t, k in zip(grid, wrong, strict=True)]
        p_values = mapie.p_values.ravel()
        tails = np.array([lower_tail(k, n, MAX_ERROR) for k, n in counts])
        stricter = np.array([lower_tail(k + 1, n, MAX_ERROR) for k, n in counts])
        assert np.all(tails <= p_values * (1 + 1e-9))
        assert np.all(p_values <= stricter * (1 + 1e-9))
        same_tails.append(np.isclose(tails, p_values, rtol=1e-9))
        found = certify(
            [
                LabelledScore(str(n), float(c), bool(y))
                for n, (c, y) in enumerate(zip(confidences, right, strict=True))
            ],
            MAX_ERROR,
            CONFIDENCE,
        )
        valid = np.asarray(mapie.valid_predict_params).ravel()
        if len(valid):
            assert found.threshold is not None
            assert found.threshold <= valid.min()
            lower.append(valid.min() - found.threshold)
    assert np.concatenate(same_tails).mean() > 0.3
    assert len(lower) >= 20
    assert max(lower) <= 0.15
    assert np.mean(lower) <= 0.05
