"""Changes of the configuration under traffic: all of it applies or none, and no request is lost."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.errors import StartupError
from proxy.startup.startup import reload_setup
from tests.running.client_keys import OWN_KEY, ask_with, make_key, revoke_key, wait_until_known
from tests.running.live_proxy import ProxyProcess, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream

PATIENCE_S = 20  # usually half a second; other work may share the machine
DELIVER = "{version: 1, name: lenient, default: deliver}"
HOLD = "{version: 1, name: desk, default: {hold: {queue: seniors}}}"


class Running:
    """A `pinocchio serve` whose files a test changes."""

    def __init__(self, folder: Path, upstream_url: str, more: str = "") -> None:
        self.folder = folder
        self.upstream_url = upstream_url
        self.write("house.yaml", DELIVER)
        self.process = ProxyProcess(folder, self.config(more=more))

    def config(self, policy: str = "house.yaml", more: str = "", key: str = OWN_KEY) -> str:
        return f"""
upstreams:
  faulty: {{base_url: "{self.upstream_url}", api_key: {key}}}
models: [{{match: "*", upstream: faulty}}]
calibrator: {{checkpoint: "fake:0.73"}}
store: sqlite:///{self.folder}/held.db
policies: {policy}
{more}
"""

    def write(self, name: str, text: str) -> None:
        """Replace a file as editors do, with another file under its name."""
        path = self.folder / name
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def configure(self, *args: Any, **more: Any) -> None:
        self.write("proxy.yaml", self.config(*args, **more))

    def ask(self, model: str = "ok") -> httpx.Response:
        url = f"{self.process.base_url}/chat/completions"
        return httpx.post(url, json=question("hi", model), timeout=PATIENCE_S, trust_env=False)

    def policy(self) -> str:
        """Return the name of the policy that decides at present."""
        return self.ask().headers["x-pinocchio-policy"].split("/")[0]

    @property
    def generation(self) -> int:
        ready = self.process.base_url.removesuffix("/v1") + "/readyz"
        number: int = httpx.get(ready, trust_env=False).json()["generation"]
        return number

    def wait_for(self, generation: int) -> None:
        until(lambda: self.generation == generation, PATIENCE_S)

    def refusals(self) -> list[dict[str, Any]]:
        return self.process.lines("configuration_refused")


@pytest.fixture
def running(tmp_path: Path, upstream: FaultyUpstream) -> Iterator[Running]:
    running = Running(tmp_path, upstream.base_url)
    with running.process:
        yield running


def test_a_change_under_load_loses_nothing(running: Running) -> None:
    """While clients ask, the policy changes: no request fails, and each
    follows one of the two, which its log line names with the generation.
    """
    running.write("desk.yaml", HOLD)
    is_over = threading.Event()
    seen: list[tuple[float, int, str]] = []

    def keep_asking() -> None:
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
            while not is_over.is_set():
                at = time.perf_counter()
                url = f"{running.process.base_url}/chat/completions"
                got = client.post(url, json=question("hi"))
                seen.append((at, got.status_code, got.headers["x-pinocchio-policy"].split("/")[0]))

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(keep_asking) for _ in range(4)]
        until(lambda: len(seen) > 20, PATIENCE_S)
        running.configure("desk.yaml")
        running.wait_for(2)
        changed_at = time.perf_counter()
        until(lambda: sum(at > changed_at for at, _, _ in seen) > 20, PATIENCE_S)
        is_over.set()
        for each in asking:
            each.result()
    print(f"{len(seen)} requests")
    assert {status for _, status, _ in seen} == {200}
    assert {policy for at, _, policy in seen if at > changed_at} == {"desk"}
    lines = running.process.lines()
    assert {
        (line["generation"], line["policy"].split("/")[0]) for line in lines if "policy" in line
    } == {
        (1, "lenient"),
        (2, "desk"),
    }


def test_the_record_has_the_generation(running: Running) -> None:
    """Records from before and after a change have different generations."""
    running.ask()
    running.write("house.yaml", HOLD)
    running.wait_for(2)
    running.ask()

    def generations() -> list[int]:
        with closing(sqlite3.connect(running.folder / "held.db")) as database:
            query = "SELECT generation FROM exchanges ORDER BY request_id"
            return [number for (number,) in database.execute(query)]

    until(lambda: generations() == [1, 2])


def test_a_broken_file_changes_nothing(running: Running) -> None:
    """With a broken file the old configuration stays, the
    log has file and line; once it is corrected it applies.
    """
    running.write("proxy.yaml", "polcies: desk.yaml\n")
    until(running.refusals, PATIENCE_S)
    [line] = running.refusals()
    [problem] = line["problems"]
    assert problem.startswith(f"{running.folder}/proxy.yaml:1: unknown key 'polcies'")
    assert (line["level"], line["generation"]) == ("error", 1)
    assert running.policy() == "lenient"
    running.write("desk.yaml", HOLD)
    running.configure("desk.yaml")
    running.wait_for(2)
    assert running.policy() == "desk"
    assert len(running.refusals()) == 1


def test_a_broken_policy_is_taken_once_it_is_corrected(running: Running) -> None:
    """A broken policy applies once it is corrected, also where only the new file names it."""
    running.write("desk.yaml", "{version: 1, name: desk, default: hld}")
    running.configure("desk.yaml")
    until(running.refusals, PATIENCE_S)
    assert f"{running.folder}/desk.yaml:1: " in running.refusals()[0]["problems"][0]
    assert running.policy() == "lenient"
    running.write("desk.yaml", HOLD)
    running.wait_for(2)
    assert running.policy() == "desk"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_emptied_file_is_no_configuration(running: Running, text: str) -> None:
    """An emptied file, as a crashed editor may leave, does not bring back the defaults."""
    running.write("proxy.yaml", text)
    until(running.refusals, PATIENCE_S)
    assert "the file is empty" in running.refusals()[0]["problems"][0]
    assert running.policy() == "lenient"


def test_a_removed_file_changes_nothing(running: Running) -> None:
    """While files are missing, the configuration that was read stays."""
    (running.folder / "house.yaml").unlink()
    until(running.refusals, PATIENCE_S)
    assert running.policy() == "lenient"
    running.write("house.yaml", HOLD)
    running.wait_for(2)


def test_a_file_that_is_a_link_may_be_switched(running: Running) -> None:
    """A link that is replaced, as for mounted configurations, is a change of the file."""
    (running.folder / "a.yaml").write_text(running.config())
    running.write("desk.yaml", HOLD)
    (running.folder / "b.yaml").write_text(running.config("desk.yaml"))
    for target in ("a.yaml", "b.yaml"):
        link = running.folder / "link"
        link.symlink_to(running.folder / target)
        os.replace(link, running.folder / "proxy.yaml")
    until(lambda: running.policy() == "desk", PATIENCE_S)


def test_sighup_reads_the_files_again(running: Running) -> None:
    """SIGHUP makes the next generation in the same process."""
    running.process.send_signal(signal.SIGHUP)
    running.wait_for(2)
    assert running.policy() == "lenient"


def test_a_request_ends_as_it_began(running: Running, upstream: FaultyUpstream) -> None:
    """A reply under way is delivered under the policy with which it began, although
    its upstream is no longer configured; new requests go to the new upstream.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.ask, "slow")
        request = upstream.wait_for_request()
        running.write("desk.yaml", HOLD)
        running.configure("desk.yaml", key="sk-another")
        running.wait_for(2)
        running.configure("desk.yaml", key="sk-third")
        running.wait_for(3)
        assert running.policy() == "desk"
        assert upstream.last.header("authorization") == "Bearer sk-third"
        request.proceed()
        response = waiting.result()
    assert response.status_code == 200
    assert response.headers["x-pinocchio-policy"].startswith("lenient/")
    assert request.header("authorization") == f"Bearer {OWN_KEY}"
    time.sleep(0.5)  # by now the first generation's connections are closed
    assert running.ask().status_code == 200


def test_settings_needing_restart_are_logged(running: Running) -> None:
    """A setting that needs a restart is logged and left; the file's other changes apply."""
    running.write("desk.yaml", HOLD)
    text = running.config("desk.yaml", more="limits: {max_held: 1}\nadmin: false\n")
    running.write("proxy.yaml", text.replace("held.db", "other.db"))
    running.wait_for(2)
    [line] = running.process.lines("restart_needed")
    assert (line["sections"], line["level"]) == (["store", "limits", "admin"], "warning")
    [line] = running.process.lines("configuration_reloaded")
    assert (line["generation"], line["policy"][:5], line["calibrator"][:4]) == (2, "desk@", "fake")
    assert [running.policy() for _ in range(2)] == ["desk", "desk"]
    assert not (running.folder / "other.db").exists()


def test_keys_and_teams_come_with_a_change(running: Running) -> None:
    """Once keys are required others are refused, and a team's policy changes with its file."""
    running.write("team.yaml", DELIVER)
    secret, _ = make_key(running.folder / "held.db", team="support")
    running.configure(more="keys: required\nteams: {support: {policy: team.yaml}}\n")
    running.wait_for(2)
    assert running.ask().status_code == 401
    base_url = running.process.base_url
    assert ask_with(base_url, secret).headers["x-pinocchio-policy"].startswith("lenient/")
    running.write("team.yaml", HOLD)
    running.wait_for(3)
    assert ask_with(base_url, secret).headers["x-pinocchio-policy"].startswith("desk/")
    later, _ = make_key(running.folder / "held.db", policy="team.yaml")
    wait_until_known(base_url, later)
    assert ask_with(base_url, later).headers["x-pinocchio-policy"].startswith("desk/")
    assert running.generation == 3


def test_what_would_be_unsafe_at_the_start_is_refused_later_too(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """A change may not open a proxy that everybody can reach, as at the start."""
    path = tmp_path / "proxy.yaml"
    text = f"""
upstreams: {{a: {{base_url: "{upstream.base_url}", api_key: x}}}}
models: [{{match: "*", upstream: a}}]
store: sqlite:///{tmp_path}/held.db
"""
    path.write_text(f"{text}keys: required\n")
    assert reload_setup(path, None, "0.0.0.0").config.needs_keys
    path.write_text(text)
    with pytest.raises(StartupError, match="would lend the key"):
        reload_setup(path, None, "0.0.0.0")
    assert not reload_setup(path, None, "127.0.0.1").config.needs_keys


def test_a_team_with_keys_cannot_be_taken_away(running: Running) -> None:
    """A team that has keys cannot be removed: the change is refused with the keys' ids."""
    secret, key = make_key(running.folder / "held.db", team="support")
    running.configure(more="keys: required\nteams: {support: {}, sales: {}}\n")
    running.wait_for(2)
    running.configure(more="keys: required\nteams: {sales: {}}\n")
    until(running.refusals, PATIENCE_S)
    assert f"key {key.id}: there is no team 'support'" in running.refusals()[0]["problems"][0]
    assert ask_with(running.process.base_url, secret).status_code == 200


def test_the_key_that_was_in_the_way_is_revoked(running: Running) -> None:
    """Once the keys named in the refusal are revoked, the change applies by itself."""
    secret, key = make_key(running.folder / "held.db", team="support")
    running.configure(more="keys: required\nteams: {support: {}, sales: {}}\n")
    running.wait_for(2)
    running.configure(more="keys: required\nteams: {sales: {}}\n")
    until(running.refusals, PATIENCE_S)
    revoke_key(running.folder / "held.db", key.id)
    running.wait_for(3)
    assert ask_with(running.process.base_url, secret).status_code == 401


def a_reviewer(running: Running) -> str:
    """Return the key of a new reviewer in the proxy's store."""
    store = running.folder / "store.yaml"
    store.write_text(f"store: sqlite:///{running.folder}/held.db\n")
    made = run_cli("keys", "create", "--config", str(store), "--role", "reviewer", "--name", "ann")
    return made.stdout.strip()


def test_a_refused_configuration_shows(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """A refused configuration shows in `/readyz` without its reasons, and
    on the desk's pages and in its figures with them, until it is corrected.
    """
    running = Running(tmp_path, upstream.base_url, "admin: {token: tok}")
    ready = running.process.base_url.removesuffix("/v1") + "/readyz"
    found = re.search(r"review desk (http://\S+)", running.process.stdout())
    assert found is not None
    desk = httpx.Client(
        base_url=found[1], headers={"authorization": "Bearer tok"}, trust_env=False, timeout=20
    )

    def state() -> Any:
        return httpx.get(ready, trust_env=False).json()

    with running.process, desk:
        assert state()["configuration"] == "current"
        assert desk.get("/pinocchio/v1/stats").json()["configuration"]["is_refused"] is False
        running.configure(more="admin: {token: tok}\nnonsense: 1")
        until(lambda: state()["configuration"] == "refused", PATIENCE_S)
        refused_at = state()["configuration_refused_at"]
        assert abs(refused_at - time.time()) < PATIENCE_S
        assert refused_at == round(refused_at, 3)
        assert "nonsense" not in str(state())
        configuration = desk.get("/pinocchio/v1/stats").json()["configuration"]
        assert (configuration["is_refused"], "nonsense" in configuration["problems"][0]) == (
            True,
            True,
        )
        for page in ("reviews", "policies"):
            html = desk.get(f"/console/{page}").text
            assert "The configuration on disk was refused" in html
            assert "nonsense" in html
        reviewer = {"authorization": f"Bearer {a_reviewer(running)}"}
        for page in ("reviews", "policies"):
            html = desk.get(f"/console/{page}", headers=reviewer).text
            assert "The configuration on disk was refused" in html
            assert "nonsense" not in html
        running.configure(more="admin: {token: tok}", policy="house.yaml")
        until(lambda: state()["configuration"] == "current", PATIENCE_S)
        assert "refused" not in desk.get("/console/reviews").text
