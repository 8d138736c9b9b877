"""The image, the compose file and the systemd unit name what exists, and agree with the code.

The image itself is built and run by hand (docs/operations.md), as the suite needs no engine.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config.sections import load_config
from proxy.config.setup import load_setup
from proxy.desk.listening import check_admin
from proxy.errors import ExitStatus, StartupError
from proxy.startup.startup import check_exposure
from tests.conftest import StartProxy
from tests.deploy import agreed
from tests.deploy.agreed import DEPLOY, DOCKERFILE
from tests.running.live_proxy import ROOT, free_port

STEPS = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
UNIT = DEPLOY / "systemd" / "pinocchio.service"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PROXY: dict[str, Any] = COMPOSE["services"]["proxy"]
TOKEN = "0123456789abcdef0123456789abcdef"


def steps(name: str) -> list[str]:
    """Return the arguments of all lines with this instruction, in order."""
    return [line.partition(" ")[2] for line in STEPS if line.startswith(f"{name} ")]


def copied() -> list[str]:
    """Return the paths that the image copies from the clone."""
    found = [line.split()[:-1] for line in steps("COPY") if not line.startswith("--from")]
    return [source for sources in found for source in sources]


def test_the_image_takes_what_is_there_and_its_context_lets_through() -> None:
    """Each source of COPY is in the clone, and the build context has these and nothing else."""
    let = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert sorted(let) == sorted(copied())
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_every_package_of_the_image_has_its_hash() -> None:
    """Both lock files are installed with `--require-hashes`; one has PostgreSQL's driver."""
    [install] = [line for line in steps("RUN") if "--require-hashes" in line]
    files = re.findall(r"-r (\S+)", install)
    assert files == ["requirements.lock", "deploy/requirements.lock"]
    locked = "".join((ROOT / file).read_text() for file in files)
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", locked, re.MULTILINE))
    constraints = (ROOT / "constraints.txt").read_text()
    for name in ("psycopg", "psycopg-binary", "uvicorn"):
        assert f"\n{name}=={pinned[name]}\n" in constraints
    # Each of the two files has a line at its top.
    assert len(re.findall(r"^\S", locked, re.MULTILINE)) == len(pinned) + 2


def test_the_image_does_not_run_as_root_and_says_where_it_listens() -> None:
    """The user is given by number, for Kubernetes; ports, folder and command are the code's."""
    assert steps("USER") == [f"{agreed.USER_ID}:{agreed.USER_ID}"]
    assert f"--uid {agreed.USER_ID} " in DOCKERFILE
    assert steps("EXPOSE") == [f"{agreed.DEFAULT_PORT} {agreed.DESK_PORT}"]
    assert steps("VOLUME") == [agreed.STORE_FOLDER]
    assert json.loads(steps("ENTRYPOINT")[0]) == ["pinocchio"]
    assert json.loads(steps("CMD")[0]) == ["serve", "--host", "0.0.0.0"]
    assert steps("WORKDIR")[-1] == str(Path(agreed.CONFIG).parent)  # where `serve` looks for it
    assert f"COPY deploy/proxy.yaml {agreed.CONFIG}" in STEPS


def test_the_health_check_detects_a_proxy(start_proxy: StartProxy) -> None:
    """The health check of the Dockerfile, with another port, succeeds only with a proxy."""
    [check] = steps("HEALTHCHECK")
    program, *arguments = json.loads(check.partition(" CMD ")[2])
    assert program == "python3"
    for port, status in ((start_proxy().port, 0), (free_port(), 1)):
        code = [each.replace(str(agreed.DEFAULT_PORT), str(port)) for each in arguments]
        done = subprocess.run([sys.executable, *code], capture_output=True, timeout=30)
        assert done.returncode == status
    assert any(f"'{probe}'" in arguments[1] for probe in agreed.PROBES)


def test_the_configuration_of_the_image_is_safe_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The desk needs a token, and clients need keys of their own to use an upstream key."""
    for name in agreed.known_variables():
        monkeypatch.delenv(name, raising=False)
    path = DEPLOY / "proxy.yaml"
    bare = load_config(path)
    assert bare.store.startswith(f"sqlite:///{agreed.STORE_FOLDER}/")
    assert bare.admin.port == agreed.DESK_PORT
    with pytest.raises(StartupError, match=r"set admin\.token"):
        check_admin(bare.admin)
    monkeypatch.setenv("PINOCCHIO_ADMIN_TOKEN", TOKEN)
    check_admin(load_config(path).admin)
    check_exposure(load_setup(path), "0.0.0.0")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-company")
    with pytest.raises(StartupError, match="keys: required"):
        check_exposure(load_setup(path), "0.0.0.0")
    monkeypatch.setenv("PINOCCHIO_KEYS", "required")
    check_exposure(load_setup(path), "0.0.0.0")


# compose.yaml


def test_compose_names_variables_that_somebody_reads() -> None:
    """Compose sets only variables that the proxy reads; its head explains each required one."""
    assert set(PROXY["environment"]) <= agreed.known_variables()
    text = (DEPLOY / "compose.yaml").read_text()
    head = text[: text.index("\nname:")]
    assert {name for name in re.findall(r"\$\{(\w+):\?", text) if name not in head} == set()


def test_compose_restricts_the_proxy() -> None:
    """The proxy is read-only, without capabilities, on loopback, and has time to stop."""
    assert PROXY["read_only"] is True
    assert PROXY["cap_drop"] == ["ALL"]
    assert PROXY["volumes"] == [f"pinocchio:{agreed.STORE_FOLDER}"]
    assert (DEPLOY / PROXY["build"]["context"] / PROXY["build"]["dockerfile"]).resolve().is_file()
    wanted = [f"127.0.0.1:{port}:{port}" for port in (agreed.DEFAULT_PORT, agreed.DESK_PORT)]
    assert PROXY["ports"] == wanted
    assert int(PROXY["stop_grace_period"].removesuffix("s")) > agreed.STOP_S
    published = [p for each in COMPOSE["services"].values() for p in each.get("ports", ())]
    assert all(each.startswith("127.0.0.1:") for each in published)


def test_compose_mounts_what_is_there() -> None:
    """Mounted files exist, named volumes are declared, and each image has a version."""
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            known = (DEPLOY / source).exists() if source[0] == "." else source in COMPOSE["volumes"]
            assert known, volume
        assert name == "proxy" or ":" in service["image"]


def test_prometheus_of_compose_scrapes_the_desk() -> None:
    """Prometheus scrapes the desk by the proxy's name, with its token, and has the alerts."""
    path = DEPLOY / "prometheus" / "prometheus.yml"
    program = shutil.which("promtool")
    assert program is not None, "scripts/setup_programs installs it"
    check = [program, "check", "config", "--syntax-only", str(path)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    config = yaml.safe_load(path.read_text())
    [job] = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"proxy:{agreed.DESK_PORT}"]}]
    service = COMPOSE["services"]["prometheus"]
    [secret] = service["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert COMPOSE["secrets"][secret] == {"environment": "PINOCCHIO_ADMIN_TOKEN"}
    assert config["rule_files"] == ["alerts.yaml"]
    targets = [volume.split(":")[1] for volume in service["volumes"]]
    assert {"/etc/prometheus/prometheus.yml", "/etc/prometheus/alerts.yaml"} <= set(targets)


def test_grafana_of_compose_finds_the_board() -> None:
    """Grafana's provider reads the folder of the board, and its source is Prometheus's address."""
    folder = DEPLOY / "grafana" / "provisioning"
    [provider] = yaml.safe_load((folder / "dashboards/pinocchio.yaml").read_text())["providers"]
    [source] = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    mounts = COMPOSE["services"]["grafana"]["volumes"]
    board = f"./grafana/pinocchio.json:{provider['options']['path']}/pinocchio.json:ro"
    assert board in mounts
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in mounts
    assert source["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in COMPOSE["services"]["prometheus"]["ports"]


# The systemd unit


def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    """systemd finds the unit valid and hardened, with the program of this environment."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / UNIT.name
    installed = str(Path(sys.executable).with_name("pinocchio"))
    unit.write_text(UNIT.read_text().replace("/opt/pinocchio/bin/pinocchio ", f"{installed} "))
    security = ["security", "--offline=true", "--threshold=20", "--no-pager"]
    for arguments in (["verify"], security):
        done = subprocess.run(
            [program, *arguments, str(unit)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_unit_stops_and_restarts_as_the_code_does() -> None:
    """The unit waits for open replies, and does not restart after a start that cannot succeed."""
    text = UNIT.read_text()
    [timeout] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(timeout) > agreed.STOP_S
    [given_up] = re.findall(r"^RestartPreventExitStatus=(.*)$", text, re.MULTILINE)
    final = (ExitStatus.UNUSABLE_INPUT, ExitStatus.CHECKPOINT_MISSING, ExitStatus.UNSAFE)
    assert [int(status) for status in given_up.split()] == list(final)
    [start] = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
    assert start == f"serve --config {agreed.CONFIG}"
    assert set(re.findall(r"\b(\w+)=\.\.", text)) <= agreed.known_variables()
