"""Figures of the validation rows at the end of a training."""

from __future__ import annotations

from calibrator.metrics.numbers import validation_text


def test_figures_stand_in_a_table() -> None:
    """The table has three figures for each of both measurements."""
    plain = {"rows": 1_200, "auroc": 0.8, "brier": 0.15, "ece": 0.02}
    assert validation_text(plain, plain | {"auroc": 0.9}, "at the end").splitlines() == [
        "1,200 validation rows, at the end:",
        "  no names told          AUROC 0.800, Brier 0.150, ECE 0.020",
        "  with the model's name  AUROC 0.900, Brier 0.150, ECE 0.020",
    ]


def test_rows_of_one_label_have_no_auroc() -> None:
    """Validation rows of one label have no AUROC, and the text says so."""
    found = {"rows": 2, "brier": 0.25, "ece": 0.5}
    text = validation_text(found, found)
    assert text.startswith("2 validation rows:\n")
    assert text.count("no AUROC (all rows have one label), Brier 0.250, ECE 0.500") == 2
