"""The report of a calibrator's figures on validation rows, at the end of a training."""

from __future__ import annotations

from collections.abc import Mapping


def validation_text(
    plain: Mapping[str, float], named: Mapping[str, float], moment: str = ""
) -> str:
    """Return both measurements as a small table: without names, and with the model's name.

    Each has `rows`, `brier` and `ece`, and `auroc` where there are right and wrong rows; `moment`
    is a point of the training.
    """
    lines = [f"{plain['rows']:,} validation rows{f', {moment}' if moment else ''}:"]
    for label, found in (("no names told", plain), ("with the model's name", named)):
        figures = ", ".join(
            f"{name} {found[key]:.3f}" if key in found else f"no {name} (all rows have one label)"
            for name, key in (("AUROC", "auroc"), ("Brier", "brier"), ("ECE", "ece"))
        )
        lines.append(f"  {label:21}  {figures}")
    return "\n".join(lines)
