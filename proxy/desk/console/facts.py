"""The pages about the record and the verdicts: traffic, quality, policies, calibrator."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.config.setup import Setup
from proxy.desk.console import quality
from proxy.desk.console.pages import render_page
from proxy.desk.console.shell import Handler, page, with_error_pages
from proxy.desk.console.views import calibrator_cards, policy_views, source_of
from proxy.desk.decisions.desk import Desk
from proxy.desk.decisions.unseen import one_line
from proxy.errors import NotFoundError
from proxy.learning.drift import FALSE_ALARM_RATE, monitor_states
from proxy.learning.second_opinions import LABELS_FOR_DAYS, second_opinions
from proxy.store.record.writer import DAY_S
from proxy.store.verdicts.statistics import (
    LOOKED_AT,
    MOST_OF_A_SLICE,
    ExchangeFilter,
    Sample,
    Window,
    calibrator_in_force,
    judged_replies,
    latest,
    names,
    sample,
)

WINDOWS: Final = (1, 7, 30)  # days
ACTIONS: Final = ("deliver", "annotate", "hold", "escalate", "clarify", "block")
START: Final = 0.5  # the threshold that is shown first


class Facts:
    """The pages about the record and the verdicts of one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def _setup(self) -> Setup:
        """The configuration in force; a desk that is served has one."""
        assert self._desk.setup is not None
        return self._desk.setup()

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        pages: dict[str, Handler] = {
            "traffic": self._traffic,
            "traffic/rows": self._rows,
            "quality": self._quality,
            "policies": self._policies,
            "policies/{name}": self._policy,
            "calibrator": self._calibrator,
        }
        return [
            Route(f"/console/{path}", with_error_pages(self._desk, pages[path])) for path in pages
        ]

    # --- traffic --------------------------------------------------------------------------------

    def _traffic(self, request: Request) -> Response:
        """Return the page of the latest exchanges, with its filters."""
        filters = _read_filters(request, "model", "team", "action")
        engine = self._desk.queue.engine
        models, teams = names(sample(engine, _window(1)).rows)
        return page(
            self._desk,
            request,
            "traffic.html",
            "traffic",
            filters=filters,
            seen=latest(engine, ExchangeFilter(**filters)),
            models=models[:50],
            teams=teams[:50],
            actions=ACTIONS,
            looked_at=LOOKED_AT,
            leaning=self._desk.compare_threshold,
        )

    def _rows(self, request: Request) -> Response:
        """Return the exchanges after the id `after` of the query, as rows of a table."""
        filters = _read_filters(request, "model", "team", "action")
        after = request.query_params.get("after") or None
        page_of_rows = latest(self._desk.queue.engine, ExchangeFilter(**filters), after=after)
        return render_page(
            "traffic_new.html", seen=page_of_rows, leaning=self._desk.compare_threshold
        )

    # --- quality --------------------------------------------------------------------------------

    def _quality(self, request: Request) -> Response:
        """Return the page about the confidence: calibration, thresholds, monitors and opinions."""
        days, window = _days(request)
        filters = _read_filters(request, "model", "team")
        engine = self._desk.queue.engine
        traffic = sample(engine, window)
        rows = [row for row in traffic.rows if _matches(row, filters)]
        judged = [
            each
            for each in judged_replies(engine, time.time() - LABELS_FOR_DAYS * DAY_S)
            if _matches(each, filters)
        ]
        scores = quality.one_per_conversation(rows)
        labels = quality.weight_labels(judged, scores)
        total = sum(row.weight for row in rows)
        scored = sum(row.weight for row in rows if row.confidence is not None)
        of_all = None if traffic.a_day is None else traffic.a_day / traffic.total
        points = quality.tradeoff(labels, scores, scored if of_all is None else of_all * scored)
        threshold = _threshold(request)
        bands = quality.bands(labels)
        enough = len(labels) >= quality.LEAST
        by = "team" if filters["model"] else "model"
        series = quality.over_time(traffic, scores, by)
        models, teams = names(traffic.rows)
        return page(
            self._desk,
            request,
            "quality.html",
            "quality",
            filters={"days": days, **filters},
            windows=WINDOWS,
            models=models[:50],
            teams=teams[:50],
            total=total,
            conversations=sum(row.weight for row in scores),
            a_day=None if of_all is None else of_all * total,
            is_exact=traffic.is_exact,
            most_of_a_slice=MOST_OF_A_SLICE,
            slices=window.slices,
            labels=len(labels),
            audits=sum(each.stratum == "audited" for each in judged),
            population=quality.population(judged),
            accuracy=quality.share((each.is_correct, each.weight) for each in labels),
            ece=quality.ece(bands),
            least=quality.LEAST,
            looked_at=LOOKED_AT,
            few=quality.FEW,
            false_alarm_rate=FALSE_ALARM_RATE,
            enough=enough,
            bands=bands,
            threshold=threshold,
            point=points[round(threshold * quality.STEPS)],
            warnings=quality.warnings(judged),
            monitors=sorted(monitor_states(engine), key=lambda one: (one.alarm is None, -one.seen)),
            opinions=second_opinions(engine, window, judged, lambda row: _matches(row, filters)),
            labels_for_days=LABELS_FOR_DAYS,
            by=by if len(series) > 1 else None,
            series=series,
            charts=_charts(traffic, bands if enough else [], points, series),
        )

    # --- policies and calibrator ----------------------------------------------------------------

    def _policies(self, request: Request) -> Response:
        """Return the page of the loaded policies, with what they decided in the window."""
        days, window = _days(request)
        traffic = sample(self._desk.queue.engine, window)
        setup = self._setup
        teams = {
            name: setup.book.load(team.policy).digest for name, team in setup.config.teams.items()
        }
        views, others = policy_views(setup.book, traffic.rows, teams)
        return page(
            self._desk,
            request,
            "policies.html",
            "policies",
            filters={"days": days},
            windows=WINDOWS,
            total=traffic.total,
            is_exact=traffic.is_exact,
            policies=views,
            others=others,
        )

    def _policy(self, request: Request) -> Response:
        """Return the page of one policy's file; raises NotFoundError for an unknown name."""
        name = request.path_params["name"]
        for policy in self._setup.book:
            if policy.name == name:
                return page(
                    self._desk,
                    request,
                    "policy.html",
                    "policies",
                    policy=policy,
                    **asdict(source_of(policy)),
                )
        raise NotFoundError(f"no policy {name[:64]!r} is loaded", code="policy_not_found")

    def _calibrator(self, request: Request) -> Response:
        """Return the page of the calibrator: the name in force, and its cards."""
        config = self._setup.config.calibrator
        return page(
            self._desk,
            request,
            "calibrator.html",
            "calibrator",
            name=calibrator_in_force(self._desk.queue.engine),
            cards=calibrator_cards(config),
        )


def _read_filters(request: Request, *filters: str) -> dict[str, str | None]:
    """Return the query's parameters of these names; None for an absent or empty one."""
    return {name: request.query_params.get(name) or None for name in filters}


def _days(request: Request) -> tuple[int, Window]:
    """Return (days, window) of the query's parameter `days`; 7 days if it is no known window."""
    text = request.query_params.get("days", "")
    days = int(text) if text in map(str, WINDOWS) else 7
    return days, _window(days)


def _window(days: int) -> Window:
    """Return the window of the last `days` days."""
    now = time.time()
    return Window(now - days * DAY_S, now)


def _matches(row: Any, filters: dict[str, str | None]) -> bool:
    """Return whether each attribute of `row` named in `filters` has its value; None matches any."""
    return all(value is None or getattr(row, name) == value for name, value in filters.items())


def _threshold(request: Request) -> float:
    """Return the query's `threshold`; `START` if it is no number from 0 to 1."""
    try:
        threshold = float(request.query_params.get("threshold", START))
    except ValueError:
        return START
    return threshold if 0 <= threshold <= 1 else START


def _charts(
    traffic: Sample,
    bands: list[quality.Band],
    points: list[quality.Point],
    series: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return by chart the numbers from which static/charts.js draws.

    They are "tradeoff" and "time", and "reliability" where there are `bands`.
    """
    edges = traffic.window.edges
    charts: dict[str, Any] = {
        "tradeoff": {
            "threshold": [point.threshold for point in points],
            "coverage": [point.coverage for point in points],
            "risk": [point.risk and point.risk.value for point in points],
            "low": [point.risk and point.risk.low for point in points],
            "high": [point.risk and point.risk.high for point in points],
            "errors": [point.errors for point in points],
            "load": [point.load for point in points],
        },
        "time": {
            "at": [(a + b) / 2 for a, b in pairwise(edges)],
            "series": [{**one, "name": one_line(one["name"], 32)} for one in series],
        },
    }
    if bands:
        charts["reliability"] = {
            "x": [band.confidence for band in bands],
            "y": [band.correct.value for band in bands],
            "low": [band.correct.low for band in bands],
            "high": [band.correct.high for band in bands],
            "count": [band.count for band in bands],
            "few": quality.FEW,
        }
    return charts
