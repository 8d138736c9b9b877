"""`pinocchio top`: requests, confidences, decisions, holds and errors of a running proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from proxy.commands.opening.exits import ConfigOption, exit_on_errors, plain, stop
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    import httpx
    from rich.console import RenderableType
    from rich.table import Table

DEFAULT_DESK_PORT: Final = 8_001
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ROWS: Final = 6  # of each table, for a terminal of 24 lines
LEAST_SURE: Final = 4
ANSWER_S: Final = 10.0
UNSCORED: Final = ("scored", "truncated", "unfamiliar", "not_supported")

Labels = frozenset[tuple[str, str]]
Series = Mapping[Labels, float]


class UnreachableError(Exception):
    """The desk gives no figures: one sentence, and whether another try may help."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        """Make the error; `may_pass` says whether asking again may help."""
        super().__init__(message)
        self.may_pass = may_pass


@dataclass(frozen=True, slots=True)
class DeskSnapshot:
    """The desk's figures at one moment: all series by name and labels, and the least sure holds."""

    at: float
    series: Mapping[str, Series]
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all series of a metric that have these labels; 0 without any."""
        wanted = labels.items()
        return sum(
            v for series_labels, v in self.series.get(name, {}).items() if series_labels >= wanted
        )

    def label(self, name: str, label: str) -> str:
        """Return a label's value in the first series of a name that has it, else an empty text."""
        values = (dict(labels).get(label, "") for labels in self.series.get(name, {}))
        return next(filter(None, values), "")


@dataclass(frozen=True, slots=True)
class Change:
    """The change from one snapshot to a later one; a restarted proxy counts from 0."""

    before: DeskSnapshot
    after: DeskSnapshot

    @property
    def seconds(self) -> float:
        return max(0.001, self.after.at - self.before.at)

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the growth of a counter between the two moments, by the values of these labels.

        A counter that fell has restarted, and grew by its value.
        """
        before = self.before.series.get(name, {})
        growth: dict[tuple[str, ...], float] = {}
        for series_labels, now in self.after.series.get(name, {}).items():
            then = before.get(series_labels, 0.0)
            values = dict(series_labels)
            key = tuple(values.get(label, "") for label in labels)
            growth[key] = growth.get(key, 0.0) + (now - then if now >= then else now)
        return growth

    def buckets(self, name: str) -> list[tuple[float, float]]:
        """Return each bucket of a histogram as (upper bound, number of its new values)."""
        counts = {float(le): growth for (le,), growth in self.by(f"{name}_bucket", "le").items()}
        below, found = 0.0, []
        for bound in sorted(counts):
            found.append((bound, max(0.0, counts[bound] - below)))
            below = counts[bound]
        return found

    def quantile(self, name: str, share: float) -> float | None:
        """Estimate the quantile `share` of a histogram's new values; None without any.

        Values are taken as evenly spread within a bucket.
        """
        buckets = self.buckets(name)
        rank, low, passed = share * sum(count for _, count in buckets), 0.0, 0.0
        for bound, count in buckets:
            if count and passed + count >= rank:
                fraction = (rank - passed) / count
                return low if bound == float("inf") else low + (bound - low) * fraction
            passed, low = passed + count, bound
        return None


def top(
    config: ConfigOption = None,
    url: Annotated[
        str | None, typer.Option(help="Where the review desk listens (default: as configured).")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.1, max=60, help="Look again after so many seconds.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once, after one interval, and exit.")
    ] = False,
) -> None:
    """Watch a running proxy: requests, confidences, decisions, held replies, errors.

    It asks the review desk, with the admin token of the configuration or PINOCCHIO_ADMIN_TOKEN.
    Where there is none, the proxy of the same user on this machine lets it in.
    """
    from rich.console import Console

    # clients' text is no markup: a bracket in a model's name would end the command
    console = Console(markup=False, emoji=False, highlight=False)
    with exit_on_errors(), _client(config, url) as desk, suppress(KeyboardInterrupt):
        try:
            first = look(desk)
            if once or not console.is_terminal:
                time.sleep(every)
                console.print(picture(Change(first, look(desk)), first, str(desk.base_url)))
            else:
                _watch(desk, first, every, console)
        except UnreachableError as error:
            raise stop(ExitStatus.FAILED, str(error)) from error


def _client(config: Path | None, url: str | None) -> httpx.Client:
    """Return an HTTP client of the desk, with the admin token; end the process without a desk.

    On this machine the token of the same user's proxy is taken where none is configured.
    """
    import httpx

    from proxy.config.setup import load_store_config
    from proxy.desk.access.local_token import local_token
    from proxy.gate.host_check import is_loopback

    admin = load_store_config(config).admin
    if url is None and not admin.enabled:
        message = "admin: false in the configuration: there is no review desk to ask; see --url"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    host = f"[{admin.host}]" if ":" in admin.host else admin.host
    place = url or f"http://{host}:{admin.port or DEFAULT_DESK_PORT}"
    try:
        address = httpx.URL(place)
        token = admin.token.get_secret_value()
        if not token and is_loopback(address.host):
            token = local_token(address.port or 80) or ""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, trust_env=False)
    except httpx.InvalidURL as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, f"--url {place}: {error}") from error


def look(desk: httpx.Client) -> DeskSnapshot:
    """Fetch the desk's figures and the least sure held replies; raises UnreachableError."""
    import httpx
    from prometheus_client.parser import text_string_to_metric_families

    try:
        answer = desk.get("/metrics")
        if answer.status_code in (401, 403):
            text = f"{desk.base_url} asks for an admin: set admin.token, or PINOCCHIO_ADMIN_TOKEN"
            raise UnreachableError(text, may_pass=False)
        answer.raise_for_status()
        series: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        page = desk.get("/pinocchio/v1/reviews", params={"kind": "hold", "limit": LEAST_SURE})
        waiting = page.json()["items"] if page.status_code == 200 else []
    except httpx.TransportError as error:
        text = f"no review desk answers at {desk.base_url} ({error or type(error).__name__})"
        raise UnreachableError(text, may_pass=True) from error
    except (httpx.HTTPStatusError, httpx.UnsupportedProtocol, ValueError, KeyError) as error:
        text = f"what is at {desk.base_url} is no review desk: {error}"
        raise UnreachableError(text, may_pass=True) from error
    if "pinocchio_build_info" not in series:
        raise UnreachableError(f"{desk.base_url} has no metrics of a proxy", may_pass=False)
    return DeskSnapshot(time.monotonic(), series, waiting)


def _watch(desk: httpx.Client, first: DeskSnapshot, every: float, console: Any) -> None:
    """Show the figures on the whole terminal, again every `every` seconds, until interrupted.

    A desk that does not answer for a while is asked again. Raises UnreachableError where that
    cannot help.
    """
    from rich.live import Live

    begin, last, place = first, first, str(desk.base_url)
    current: RenderableType = picture(Change(first, first), begin, place)
    with Live(current, console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            try:
                now = look(desk)
            except UnreachableError as error:
                if not error.may_pass:
                    raise
                live.update(_lost_contact(current, str(error)), refresh=True)
                continue
            if now.total("pinocchio_confidence_count") < begin.total("pinocchio_confidence_count"):
                begin = DeskSnapshot(now.at, {})  # the proxy was restarted
            current = picture(Change(last, now), begin, place)
            last = now
            live.update(current, refresh=True)


# --- the picture ----------------------------------------------------------------------------------


def picture(change: Change, begin: DeskSnapshot, place: str) -> RenderableType:
    """Return all tables of one moment for rich to print.

    Rates are those of `change`; confidences are those since `begin`, or all of them if none is new.
    """
    from rich.columns import Columns
    from rich.console import Group

    since = Change(begin, change.after)
    if not sum(count for _, count in since.buckets("pinocchio_confidence")):
        since = Change(DeskSnapshot(0.0, {}), change.after)
    return Group(
        _head(change, place),
        Columns([_requests(change), _times(change), _errors(change)], padding=(0, 3)),
        *_confidences(since),
        Columns([_decisions(change), _holds_table(change.after)], padding=(0, 3)),
        _least_sure(change.after),
    )


def _lost_contact(last_picture: RenderableType, why: str) -> RenderableType:
    """Return the last picture under a red line that says why there is no newer one."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(f"{why}; asking on", style="bold red"), last_picture)


def _head(change: Change, place: str) -> RenderableType:
    """Return the lines at the top: version, place, requests a second, calibrator, memory, CPU."""
    from rich.text import Text

    now = change.after
    is_refused = now.total("pinocchio_config_last_reload_successful") == 0
    text = Text("pinocchio ", style="bold")
    text.append(f"{now.label('pinocchio_build_info', 'version')}  {place}", style="not bold")
    calibrator = now.label("pinocchio_build_info", "calibrator") or "no calibrator yet"
    per_s = sum(change.by("pinocchio_requests_total").values()) / change.seconds
    memory = now.total("process_resident_memory_bytes") / 2**20
    cpu = sum(change.by("process_cpu_seconds_total").values()) / change.seconds
    parts = (
        f"{per_s:.1f} requests/s",
        f"{now.total('pinocchio_requests_in_flight'):.0f} in flight",
        f"{calibrator}",
        f"generation {now.total('pinocchio_config_generation'):.0f}",
        f"{memory:.0f} MB",
        f"{cpu:.0%} CPU",
    )
    text.append("\n" + "  ".join(parts), style="not bold")
    if is_refused:
        text.append("\nwhat the configuration's files say is refused", style="bold red")
    return text


def _table(title: str, *columns: str) -> Table:
    """Return an empty table; columns whose names begin with `#` are aligned right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    table.header_style = "dim"
    for column in columns:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left")
    return table


def _most(growth: Mapping[tuple[str, ...], float], total_of: Callable[..., float]) -> Iterator[Any]:
    """Yield (labels, growth, total) of the series that grew most, then largest; ROWS at most.

    `total_of` returns the total of a series by its labels.
    """
    rows = [(key, count, total_of(key)) for key, count in growth.items()]
    return iter(sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))[:ROWS])


def _requests(change: Change) -> Table:
    """Return the table of requests by surface, upstream and class of status."""
    table = _table("Requests", "surface", "upstream", "status", "#/s", "#all")
    labels, name = ("surface", "upstream", "status"), "pinocchio_requests_total"

    def whole(key: tuple[str, ...]) -> float:
        return change.after.total(name, **dict(zip(labels, key, strict=True)))

    for key, count, total in _most(change.by(name, *labels), whole):
        style = "red" if key[2] == "5xx" else ""
        numbers = f"{count / change.seconds:.1f}", f"{total:,.0f}"
        table.add_row(*map(plain, key), *numbers, style=style)
    return table


def _times(change: Change) -> Table:
    """Return the table of medians and 99th percentiles of our, upstream's and scoring time.

    They are those of the last interval or, dimmed, of all time where it has none.
    """
    table = _table("Time", "", "#p50", "#p99")
    for name, title in (("overhead", "ours"), ("upstream", "upstream's"), ("score", "scoring")):
        metric = f"pinocchio_{name}_seconds"
        is_news = change.quantile(metric, 0.5) is not None
        source = change if is_news else Change(DeskSnapshot(0.0, {}), change.after)
        quantiles = [source.quantile(metric, share) for share in (0.5, 0.99)]
        table.add_row(title, *map(_duration, quantiles), style="" if is_news else "dim")
    queue = change.after.total("pinocchio_score_queue_depth")
    table.add_row("waiting to be scored", f"{queue:.0f}", "")
    return table


def _duration(seconds: float | None) -> str:
    """Return a duration such as `12.5 ms`, `3.0 s` or `4 min`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1_000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _confidences(since: Change) -> Iterator[RenderableType]:
    """Yield a chart of confidences, a bar for each twentieth from 0 to 1, or a line without any."""
    from rich.text import Text

    counts = [count for _, count in since.buckets("pinocchio_confidence")]
    if not sum(counts):
        yield Text("Confidence  no reply has got one yet", style="bold")
        return
    highest, total = max(counts), sum(counts)
    bars = "".join(
        BLOCKS[max(1, round(count / highest * 8))] * 2 if count else "  " for count in counts
    )
    mean = sum(since.by("pinocchio_confidence_sum").values()) / total
    text = Text("Confidence  ", style="bold")
    text.append(f"{total:,.0f} replies, mean {mean:.2f}\n", style="not bold")
    text.append(bars + "\n", style="cyan")
    text.append(f"0{'0.5':>{len(counts) + 1}}{'1':>{len(counts) - 2}}", style="dim")
    yield text


def _decisions(change: Change) -> Table:
    """Return the table of decisions by policy, rule, action and mode, the most frequent ones first.

    It has their number per second during the change, and the total at its end, of at most ROWS.
    """
    table = _table("Decisions", "policy/rule", "action", "mode", "#/s", "#all")
    labels, name = ("policy", "rule", "action", "mode"), "pinocchio_decisions_total"

    def whole(key: tuple[str, ...]) -> float:
        return change.after.total(name, **dict(zip(labels, key, strict=True)))

    for (policy, rule, action, mode), count, total in _most(change.by(name, *labels), whole):
        numbers = f"{count / change.seconds:.1f}", f"{total:,.0f}"
        table.add_row(plain(f"{policy}/{rule}"), action, mode, *numbers)
    return table


def _holds_table(now: DeskSnapshot) -> Table:
    """Return the table of queues: replies that wait, the oldest, the share of its time used."""
    table = _table("Waiting for a reviewer", "queue", "kind", "#replies", "#oldest", "#time used")
    for series_labels, count in sorted(
        now.series.get("pinocchio_held_replies", {}).items(), key=str
    ):
        labels = dict(series_labels)
        time_used = now.total("pinocchio_held_time_used", **labels)
        oldest = _duration(now.total("pinocchio_held_oldest_seconds", **labels))
        style = "yellow" if labels["kind"] == "hold" and time_used > 0.5 else ""
        queue, kind = plain(labels["queue"]), labels["kind"]
        table.add_row(queue, kind, f"{count:,.0f}", oldest, f"{time_used:.0%}", style=style)
    return table


def _least_sure(now: DeskSnapshot) -> Table:
    """Return the table of the held replies with the lowest confidences."""
    table = _table("Least sure of them", "#confidence", "queue", "model", "question")
    for each in now.waiting:
        score = "none" if each["confidence"] is None else f"{each['confidence']:.4f}"
        question = plain(str(each["question"]).replace("\n", " ")[:80])
        table.add_row(score, plain(each["queue"]), plain(each["model"][:40]), question)
    return table


def _errors(change: Change) -> Table:
    """Return the table of errors: missing numbers, lost rows, refused files, drift, grants."""
    table = _table("Errors", "what", "#new", "#all")
    scores = change.by("pinocchio_scores_total", "status", "reason")
    total_of = change.after.total
    for (status, reason), count in sorted(scores.items()):
        if status not in UNSCORED:
            total = total_of("pinocchio_scores_total", status=status, reason=reason)
            text = plain(f"no number: {status} {reason}".rstrip())
            table.add_row(text, f"{count:.0f}", f"{total:,.0f}")
    for name, text in (
        ("late_scores", "streams that ended before their score"),
        ("store_dropped", "rows that were not written"),
        ("config_reload_failures", "configurations that were refused"),
    ):
        if total := total_of(f"pinocchio_{name}_total"):
            count = sum(change.by(f"pinocchio_{name}_total").values())
            table.add_row(text, f"{count:.0f}", f"{total:,.0f}", style="red" if count else "")
    for labels, count in change.after.series.get("pinocchio_drift", {}).items():
        if count:
            text = f"drift of {dict(labels)['kind']}, {plain(dict(labels)['calibrator'])}"
            table.add_row(text, "", f"{count:.0f}", style="yellow")
    for labels, counts in change.after.series.get("pinocchio_certificate_valid", {}).items():
        if not counts:
            text = f"{plain(dict(labels)['certificate'])} does not count"
            table.add_row(text, "", "", style="yellow")
    if not table.row_count:
        table.add_row("none", "", "")
    return table
