"""The gain of a hundred labels of a new kind of reply: recalibration, fine-tuning, and TF-IDF.

    python scripts/studies/few_labels.py $DATA/grounding [--draws N] [--labels N] [SET ..]

From each set of graded replies, whole questions are drawn until there are enough labels; the
methods learn from them and are judged on the replies to other questions. TF-IDF with logistic
regression has the same labels, where scikit-learn is installed. Rows of `test` come first, then
those of `train`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator.lab.judging.baselines.fitted import TOKEN  # noqa: E402
from calibrator.lab.judging.baselines.tfidf import INVERSE_PENALTY, document  # noqa: E402
from calibrator.metrics.metrics import Floats, auroc, ece  # noqa: E402
from calibrator.recalibration.fit import fit_trusting_platt  # noqa: E402
from calibrator.rows.rows import Row  # noqa: E402
from calibrator.rows.selection import load_labelled  # noqa: E402
from calibrator.tuning.fine_tuning import TunableCheckpoint  # noqa: E402
from calibrator.tuning.last_layer import Readings, fit_tuned  # noqa: E402

MOST_ROWS = 320  # most rows of a set, which take about ten seconds
LEAST_ROWS = 200
NEAR = 0.01  # AUROC
GOOD_ECE = 0.09
METHODS = ("shipped", "recalibrated", "tuned", "TF-IDF")

Method = Callable[[list[int], list[int]], Floats]
"""A function that learns from labels at positions, and returns confidences at other positions."""


def main() -> None:
    """Print AUROC and ECE of each method for each set, and a summary.

    Sets with fewer than `LEAST_ROWS` rows are left out.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--labels", type=int, default=100)
    arguments = parser.parse_args()
    start = TunableCheckpoint("embedded")
    found = []
    print("| set | " + " | ".join(f"{m}: AUROC | ECE" for m in METHODS) + " |")
    print("|---" * (1 + 2 * len(METHODS)) + "|")
    for name in arguments.sets or names_in(arguments.data):
        rows = [r for r in rows_of(arguments.data, name) if start.learns_from(r.item("served"))]
        if len(rows) < LEAST_ROWS:
            continue
        figures = judged(rows, start, arguments.labels, arguments.draws)
        found.append(figures)
        print(f"| {name} | " + " | ".join(f"{x:.3f}" for x in figures.ravel()) + " |", flush=True)
    print_summary(np.array(found))


def print_summary(found: Floats) -> None:
    """Print the means over all sets, and how often the aims are reached.

    `found` has the figures, (sets, methods, 2), the last axis being AUROC, ECE.
    """
    print("| mean | " + " | ".join(f"{x:.3f}" for x in found.mean(axis=0).ravel()) + " |")
    near = (found[:, 2, 0] >= found[:, 3, 0] - NEAR).sum()
    good = [f"{name} {(found[:, at, 1] <= GOOD_ECE).sum()}" for at, name in enumerate(METHODS)]
    print(f"\n{len(found)} sets; ECE at most {GOOD_ECE}: {', '.join(good)}")
    print(f"tuned within {NEAR} of TF-IDF's AUROC or above: {near}")


def names_in(data: Path) -> list[str]:
    """Return the names of the sets in `test/`, sorted, without those that begin with `pairs_`."""
    names = (path.name.removesuffix(".jsonl.gz") for path in (data / "test").glob("*.jsonl.gz"))
    return sorted(name for name in names if not name.startswith("pairs_"))


def rows_of(data: Path, name: str) -> list[Row]:
    """Return whole questions of a set in a random order that is always the same.

    There are about `MOST_ROWS` rows at most. Those of the file in `test/` come first, then those in
    `train/`.
    """
    rng = random.Random(7)
    found: list[Row] = []
    for part in ("test", "train"):
        file = data / part / f"{name}.jsonl.gz"
        rows = load_labelled([file])[0] if file.is_file() else []
        by_question: dict[str, list[Row]] = {}
        for row in rows:
            by_question.setdefault(row.question_id, []).append(row)
        questions = sorted(by_question)
        rng.shuffle(questions)
        for question in questions:
            if len(found) < MOST_ROWS:
                found += by_question[question]
    return found


def judged(rows: Sequence[Row], start: TunableCheckpoint, labels: int, draws: int) -> Floats:
    """Return the mean AUROC and ECE of each method over the draws, (methods, 2).

    Each draw learns from `labels` rows.
    """
    found = start.read_rows(rows)
    methods = (*methods_of(found), words_of(rows))
    figures = []
    for known, other in drawn(found, labels, draws):
        y = found.correct[other]
        predictions = [method(known, other) for method in methods]
        figures.append([(auroc(y, p), ece(y, p)) for p in predictions])
    return np.asarray(np.mean(figures, axis=0))


def drawn(found: Readings, labels: int, draws: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield (rows to learn from, rows to judge), as positions, for each draw of whole questions.

    At least `labels` rows are learnt from. A draw is left out if a part has one label only.
    """
    for seed in range(draws):
        order = sorted(set(found.questions))
        random.Random(seed).shuffle(order)
        places = {question: at for at, question in enumerate(order)}
        at = sorted(range(len(found)), key=lambda i: places[found.questions[i]])
        end = labels
        while end < len(at) and found.questions[at[end]] == found.questions[at[end - 1]]:
            end += 1
        known, other = at[:end], at[end:]
        if all(len(set(found.correct[part].tolist())) == 2 for part in (known, other)):
            yield known, other


def methods_of(found: Readings) -> tuple[Method, Method, Method]:
    """Return the methods shipped, recalibrated and tuned, for the replies in `found`.

    Each takes positions to learn from and to judge, and returns P(correct) of the latter.
    """

    def recalibrated(known: list[int], other: list[int]) -> Floats:
        """Return P(correct) of `other` by Platt scaling fitted on `known`; both are positions."""
        curve = fit_trusting_platt(found.correct[known], found.read.confidence[known])
        return np.asarray(curve.apply_all(found.read.confidence[other]))

    def tuned(known: list[int], other: list[int]) -> Floats:
        """Return P(correct) of `other` by the last layer fitted on `known`, both as positions."""
        return fit_tuned(found.take(known)).confidence(found.read.take(other))

    return (lambda _, other: found.read.confidence[other]), recalibrated, tuned


def words_of(rows: Sequence[Row]) -> Method:
    """Return the method of TF-IDF with logistic regression on the rows' texts.

    It takes positions to learn from and to judge, and returns P(correct) of the latter.
    """

    def words(known: list[int], other: list[int]) -> Floats:
        """Return P(correct) of `other` by word pairs fitted on `known`, both as positions."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        counting = TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKEN)
        x = counting.fit_transform(document(rows[at]) for at in known)
        fitted = LogisticRegression(C=INVERSE_PENALTY, max_iter=300)
        fitted.fit(x, [rows[at].correct for at in known])
        judged = counting.transform(document(rows[at]) for at in other)
        return np.asarray(fitted.predict_proba(judged)[:, 1])

    return words


if __name__ == "__main__":
    main()
