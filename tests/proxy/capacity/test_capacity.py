"""`pinocchio capacity`: measured costs turned into machines and money."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proxy.capacity.costs import MEASURED, Costs, costs_of, read_costs
from proxy.capacity.planning import Assumptions, Load, Plan, plan
from proxy.commands.app import cli
from tests.running.live_proxy import ROOT

PAGE = ROOT / "docs" / "capacity.md"
COSTS, SOURCE = read_costs()
ROUND = Costs(*[1.0] * len(fields(Costs)))


def told(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["capacity", *arguments])


def as_json(*arguments: str) -> Any:
    done = told(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_is_arithmetic_on_the_costs() -> None:
    """A cost of 1 each: a request of 3 tokens takes 4 ms and a row, a score the same."""
    load = Load(1_000, tokens=3, stream_share=0.5, tokens_per_s=3, first_token_s=1, held_share=0)
    found = plan(ROUND, load, Assumptions(utilisation=0.5, keep_days=1, database_cores=1))
    assert (found.request_ms, found.score_ms) == (5.0, 4.0)
    assert (found.loop_cores, found.score_cores, found.cores) == (10.0, 8.0, 18)
    assert (found.in_flight, found.workers) == (2_000.0, 10)
    assert found.memory_gb == pytest.approx((10 * 2 + 2_000) / 1e6)
    assert (found.database_cores, found.databases) == (2.0, 2)
    assert found.disk_gb == pytest.approx(86.4)
    usd = (20 * 0.04 + found.memory_gb * 0.005) * 730 + 86.4 * 0.12
    assert found.usd_month == pytest.approx(usd)


def test_many_that_wait_take_processes_though_they_take_no_time() -> None:
    """A process has room for so many connections."""
    free = replace(ROUND, plain_ms=0, plain_token_ms=0, stream_ms=0, stream_token_ms=0, row_ms=0)
    load = Load(1_000, tokens=1_000, tokens_per_s=10, first_token_s=0)
    found = plan(free, load, Assumptions(calibrator="none"))
    assert (found.in_flight, found.workers) == (100_000, math.ceil(100_000 / 4_096))


def test_a_language_model_takes_gpus() -> None:
    """Two operations for each parameter and token, of those that a GPU does in a second."""
    load = Load(100, tokens=500, prompt_tokens=1_500)
    given = Assumptions("llm", 1.0, gpu_tflops=100, gpu_share=0.5, utilisation=0.5)
    found = plan(ROUND, load, given)
    assert found.gpus == math.ceil(2 * 1e9 * 2_000 * 100 / (100e12 * 0.5) / 0.5)
    assert (found.score_cores, found.score_ms) == (0.0, 0.0)


def test_costs_say_how_they_were_measured() -> None:
    """The file has every figure, its command and its machine."""
    document = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert document["command"].startswith("scripts/bench capacity ")
    assert document["machine"] in SOURCE
    assert COSTS.as_dict() == document["costs"]
    assert all(value >= 0 for value in COSTS.as_dict().values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "no 'costs'"),
        ('{"costs": {"plain_ms": "1"}}', "plain_ms is '1'"),
        ("[]", "no JSON object"),
        ("?", "Expecting value"),
    ],
)
def test_a_file_without_costs_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """With its name, and the command that writes such a file."""
    path = tmp_path / "costs.json"
    path.write_text(text)
    done = told("--costs", str(path))
    assert done.exit_code == 2
    assert why in done.stderr
    assert f"{path}: " in done.stderr
    assert "scripts/bench capacity -o" in done.stderr


def test_costs_of_another_machine_are_reckoned_with(tmp_path: Path) -> None:
    """Twice the time takes twice the cores."""
    path = tmp_path / "costs.json"
    slower = {name: 2 * value for name, value in COSTS.as_dict().items()}
    assert costs_of({"costs": slower}).plain_ms == 2 * COSTS.plain_ms
    path.write_text(json.dumps({"command": "mine", "machine": "ours", "costs": slower}))
    found = as_json("--requests", "1000/s", "--costs", str(path))
    assert found["measured"] == "mine on ours"
    ratio = found["plan"]["loop_cores"] / as_json("--requests", "1000/s")["plan"]["loop_cores"]
    assert ratio == pytest.approx(2)


@pytest.mark.parametrize(
    ("text", "per_s"), [("60/min", 1.0), ("7200/h", 2.0), ("8.64e6/d", 100.0), ("1,500", 1_500.0)]
)
def test_rates_are_read(text: str, per_s: float) -> None:
    assert as_json("--requests", text)["load"]["requests_per_s"] == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["", "many", "0/s", "-1/s", "5/year", "1.2.3/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    done = told("--requests", text)
    assert (done.exit_code, "is no rate of requests" in done.stderr) == (2, True)


def test_another_calibrator_is_refused() -> None:
    done = told("--calibrator", "oracle")
    assert (done.exit_code, "embedded, llm, none" in done.stderr) == (2, True)


def test_people_read_it_line_by_line() -> None:
    """What each part takes, and where the costs are from."""
    lines = told("--requests", "1000/s", "--calibrator", "llm").stdout.splitlines()
    assert [line.split()[0] for line in lines[:7]] == [
        *("requests", "proxy", "scores", "memory", "database", "disk", "money"),
    ]
    assert "not measured" in lines[2]
    assert SOURCE in lines[-1]


def test_the_simulation_is_of_one_process() -> None:
    """Its share of the load: what is 60 % busy answers, and hardly anything is late."""
    found = as_json("--requests", "1000/s", "--simulate")["simulation"]
    assert found["own time, p99 ms"] > found["own time, mean ms"] > 0
    assert found["replies a batch"] >= 1
    assert found["unscored"] == 0
    busy = as_json("--requests", "1000/s", "--simulate", "--utilisation", "0.95")["simulation"]
    assert busy["own time, mean ms"] > 2 * found["own time, mean ms"]


# --- the page ------------------------------------------------------------------------------------


def row_of(rate: float, found: Plan) -> str:
    cells = [
        *(rate, found.in_flight, found.workers, math.ceil(found.score_cores)),
        *(found.memory_gb, math.ceil(found.database_cores), found.disk_gb, found.usd_month),
    ]
    shown = [f"{cell:,.0f}" if cell >= 10 or cell == int(cell) else f"{cell:.1f}" for cell in cells]
    return f"| {' | '.join(shown)} |"


def rows_of_costs() -> list[str]:
    c = COSTS
    return [
        f"| a whole reply | {c.plain_ms:.3g} ms, and {1e6 * c.plain_token_ms:.3g} ns a token |",
        f"| a stream | {c.stream_ms:.3g} ms, and {1e3 * c.stream_token_ms:.3g} µs a token |",
        f"| a score | {c.score_ms:.3g} ms, and {1e3 * c.score_token_ms:.3g} µs a token |",
        f"| a row of the record | {c.row_ms:.3g} ms, PostgreSQL's {c.row_database_ms:.3g} ms |",
        f"| the same on its disk | {c.row_kb:.3g} kB, and {c.held_kb:.3g} kB of a held reply |",
        f"| a process | {c.process_kb / 1e3:.3g} MB, and {c.calibrator_kb / 1e3:.3g} MB to score |",
        f"| a request under way | {c.stream_kb:.3g} kB |",
    ]


def test_the_page_has_what_the_command_says() -> None:
    """Both tables follow from the costs that ship."""
    page = PAGE.read_text(encoding="utf-8")
    for rate in (10, 1_000, 100_000):
        assert row_of(rate, plan(COSTS, Load(rate), Assumptions())) in page
    for row in rows_of_costs():
        assert row in page
    [command] = re.findall(r"^    pinocchio (capacity .*tokens 600)$", page, re.MULTILINE)
    assert told(*command.split()[1:]).exit_code == 0
