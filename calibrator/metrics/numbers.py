"""Figures as text for people, and the report of a training's validation.

A figure that does not exist is a dash, never nan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

NO_FIGURE = "\N{EN DASH}"


def figure(value: float, digits: int = 3) -> str:
    """Return a number with `digits` digits and commas, such as `1,234.500`, or a dash.

    A dash is for nan and infinity.
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else NO_FIGURE


def bounds(low: float, high: float) -> str:
    """Return `0.712 to 0.745` for the ends of an interval, or "" if one is not finite."""
    return f"{low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else ""


def percent(value: float) -> str:
    """Return a share as whole percent, such as `42 %`."""
    return f"{100 * value:.0f} %"


def p_text(p: float) -> str:
    """Return a p value as `p = 0.03`, `p = 0.0042` or `p < 0.0001`, or a dash for nan."""
    if not math.isfinite(p):
        return NO_FIGURE
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}" if p < 0.01 else f"p = {p:.2f}"


def chance_text(p: float) -> str:
    """Return the p value of a permutation test as text, such as `p = 0.03`.

    Below 0.0011, near the smallest possible value, it is written as an upper limit.
    """
    return f"p \N{LESS-THAN OR EQUAL TO} {p:.1g}" if p < 0.0011 else p_text(p)


def validation_text(
    plain: Mapping[str, float], named: Mapping[str, float], moment: str = ""
) -> str:
    """Return a training's figures on validation rows as text of three lines.

    `plain` are those without names, `named` those with the model's name. Each has `rows`, `brier`
    and `ece`, and `auroc` where there are right and wrong rows; `moment` is a point of the
    training, such as `after 2 epochs`.
    """
    lines = [f"{plain['rows']:,} validation rows{f', {moment}' if moment else ''}:"]
    for label, found in (("no names told", plain), ("with the model's name", named)):
        figures = ", ".join(
            f"{name} {found[key]:.3f}" if key in found else f"no {name} (all rows have one label)"
            for name, key in (("AUROC", "auroc"), ("Brier", "brier"), ("ECE", "ece"))
        )
        lines.append(f"  {label:21}  {figures}")
    return "\n".join(lines)
