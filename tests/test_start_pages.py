"""The pages for beginners, followed: their files are written and their commands run in order."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import httpx
import yaml

from policies import load_policy, parse_policy
from proxy import errors
from proxy.config.sections import Config, load_config
from proxy.generations.reloading import NEEDS_RESTART
from proxy.routes.admission import ALIVE, READY
from tests.running.live_proxy import ROOT, ProxyProcess, environment, until
from tests.running.warm_cli import Program, run_warm, shell_command

DOCS = ROOT / "docs"
PATIENCE_S = 300  # seconds for a step; on an idle machine each takes one or two
IMPORTED = ("httpx", "openai", "openai.resources.chat")
HELD, AUDITED = re.compile(r"chatcmpl-held-\w+"), re.compile(r"audit_\w+")
BLOCK = re.compile(r"^```\w+\n(# (\S+)\n(?:.*\n)*?)```$|^((?:    .*\n)+)", re.MULTILINE)


@dataclass
class Reader:
    """A reader who follows a page in an empty folder, with a calibrator that always says 0.4.

    If `is_shipped`, it is the shipped calibrator.
    """

    folder: Path
    is_shipped: bool = False
    proxy: ProxyProcess | None = None
    config: str = ""
    printed: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # values of ID and KEY

    def follow(self, text: str) -> None:
        for file, name, commands in BLOCK.findall(text):
            if name:
                self._write(name, file)
            for command in commands_in(commands):
                self._run(command)

    def _write(self, name: str, text: str) -> None:
        if name == "proxy.yaml":
            text = self.config = f"{text}{self._apart()}"
        elif self.proxy is not None:
            text = text.replace("http://127.0.0.1:8000/v1", self.proxy.base_url)
        (self.folder / name).write_text(text)

    def _apart(self) -> str:
        """Return the configuration that separates this proxy from others on this machine."""
        store = f"sqlite:///{self.folder}/held.db"
        checkpoint = "embedded" if self.is_shipped else "fake:0.4"
        calibrator = f'{{checkpoint: "{checkpoint}", timeout_s: 30}}'  # for a busy machine
        return f"admin: {{port: 0}}\ncalibrator: {calibrator}\nstore: {store}\n"

    def _run(self, command: str) -> None:
        if command.startswith("pinocchio serve"):
            self.close()
            self.proxy = ProxyProcess(self.folder, self.config or self._apart())
            if self.is_shipped:
                ready = self.proxy.base_url.removesuffix("/v1") + "/readyz"
                until(lambda: httpx.get(ready, trust_env=False).status_code == 200, PATIENCE_S)
            return
        for name, value in self.names.items():
            command = re.sub(rf"\b{name}\b", value, command)
        if self.proxy is not None:
            command = command.replace("http://127.0.0.1:8000/v1", self.proxy.base_url)
        done = self._python(command) if command.startswith("python ") else self._shell(command)
        expected = (
            (0, 3) if command.startswith("pinocchio advise") else (0,)
        )  # 3: something can be improved
        assert done.returncode in expected, (command, done.stderr)
        self.printed.setdefault(command.split(" -H ")[0], []).append(done.stdout)
        if id := HELD.search(done.stdout) or AUDITED.search(done.stdout):
            self.names["ID"] = id[0]
        if key := re.match(r"sk-pinocchio-\w+", done.stdout):
            self.names.setdefault("KEY", key[0])

    def _python(self, command: str) -> subprocess.CompletedProcess[str]:
        program = Program(self.folder / command.split()[1], IMPORTED)
        return run_warm(
            (), cwd=self.folder, env=environment(), timeout_s=PATIENCE_S, program=program
        )

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        script = f'pinocchio() {{ {shell_command()} "$@"; }}\n{command}\n'
        return subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environment() | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip

    def outputs_of(self, command: str) -> list[str]:
        """Return what each run of the command printed."""
        return next(texts for line, texts in self.printed.items() if line.startswith(command))

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.__exit__()
            self.proxy = None


def commands_in(block: str) -> list[str]:
    """Return the commands of an indented block; a backslash or an open quote continues one."""
    found = [""]
    for line in block.splitlines():
        found[-1] += line.removeprefix("    ")
        if found[-1].endswith("\\") or found[-1].count("'") % 2:
            found[-1] += "\n"
        else:
            found.append("")
    return [command.strip() for command in found if command.strip()]


def follow(page: str, folder: Path, part: str = "", *, is_shipped: bool = False) -> Reader:
    """Follow a page, or its part under a heading."""
    reader, text = Reader(folder, is_shipped), (DOCS / page).read_text(encoding="utf-8")
    try:
        reader.follow(text.partition(f"## {part}\n")[2].partition("\n## ")[0] if part else text)
    finally:
        reader.close()
    return reader


def test_an_app_sees_confidences_and_gets_what_a_reviewer_released(tmp_path: Path) -> None:
    """The page for apps works: the calibrator doubts wrong answers and says why."""
    reader = follow("start/apps.md", tmp_path, is_shipped=True)
    headers, body = reader.outputs_of("curl -si")[0].split("\n\n", 1)
    assert "x-pinocchio-action: deliver" in headers
    assert "x-pinocchio-basis: computed" in headers
    [first] = json.loads(body)["pinocchio"]["choices"]
    assert first["confidence"] < 0.2
    assert first["because"] == ["91 is not prime"]
    bodies = [
        each for line, texts in reader.printed.items() if "curl -s " in line for each in texts
    ]
    checked, audited, held, released = map(json.loads, bodies)
    wrong, right = checked["pinocchio"]["choices"]
    assert wrong["support"] < 0.4 < 0.6 < right["support"]
    assert wrong["because"] == ["the context says otherwise: 25"]
    assert right["basis"] == ["context"]
    assert reader.outputs_of("python ask.py")[0].startswith(
        f"reply: {first['confidence']} based on comp"
    )
    assert "because 91 is not prime" in reader.outputs_of("python ask.py")[0]
    assert audited["pinocchio"]["action"] == "deliver"
    advice = reader.outputs_of("pinocchio advise")[0]
    assert "collect more labels" in advice
    assert "31 rows of 31 questions" in advice
    assert "so far AUROC" in advice
    assert "more labels are needed" in advice
    assert "policy careful@" in reader.outputs_of("pinocchio check")[0]
    assert held["choices"][0]["finish_reason"] == "content_filter"
    assert released["choices"][0]["message"]["content"].startswith("Yes, 91 is a prime number")


def test_an_agent_gets_its_call_once_it_is_released(tmp_path: Path) -> None:
    """The page for agents works: the call is held, then fetched after its release."""
    held, released = follow("start/agents.md", tmp_path).outputs_of("python refund.py")
    assert re.fullmatch(r"error: held_for_review chatcmpl-held-\w+\n", held)
    assert released.startswith("call: refund_order {")


def test_teams_have_keys_and_policies_of_their_own(tmp_path: Path) -> None:
    """The page for teams works: each team has its key and policy."""
    reader = follow("start/teams.md", tmp_path, is_shipped=True)
    assert '"invalid_api_key"' in reader.outputs_of("curl -s ")[0]
    assert "x-pinocchio-policy: helpdesk/failed-a-check@" in reader.outputs_of("curl -si ")[0]
    listed = reader.outputs_of("pinocchio keys list")[0]
    assert "shop" in listed
    assert "notebook" in listed
    assert (tmp_path / "record.jsonl").exists()


def test_two_reviewers_release_a_reply_at_the_desk(tmp_path: Path) -> None:
    """The desk page works: two reviewers release a reply, and the page's policies can be loaded."""
    reader = follow("desk.md", tmp_path, "Five minutes")
    assert "content_filter" in reader.outputs_of("curl -s http")[0]
    assert "second-look" in (tmp_path / "second-look.yaml").read_text()
    outputs = [
        text for line, texts in reader.printed.items() if "approve" in line for text in texts
    ]
    assert [each.split(" is ")[1] for each in outputs] == [
        "open: 1 of 2 approved (alice)\n",
        "released: 2 of 2 approved (alice, bob)\n",
    ]
    *_, [released] = reader.printed.values()
    assert "Yes, 91 is a prime number" in released
    page = (DOCS / "desk.md").read_text(encoding="utf-8")
    policies = re.findall(r"```yaml\n# (\S+)\n(version.*?)```", page, re.DOTALL)
    assert len(policies) >= 3
    assert all(file == f"{parse_policy(text, file).name}.yaml" for file, text in policies)


def test_the_page_of_the_configuration_has_every_section(tmp_path: Path) -> None:
    """The page of the configuration names every section, and its examples are valid."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(Config.model_fields)
    restarts = text[text.index("The sections") : text.index("need a restart")]
    assert set(re.findall(r"`(\w+)`", restarts)) == set(NEEDS_RESTART)
    example, *pieces = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert all(yaml.safe_load(piece).keys() <= Config.model_fields.keys() for piece in pieces)
    (tmp_path / "proxy.yaml").write_text(example)
    config = load_config(tmp_path / "proxy.yaml", {"OPENAI_API_KEY": "sk-x"})
    assert load_policy(config.policies).name == "helpdesk"


def test_the_page_of_the_api_has_every_error() -> None:
    """The page of the API lists every error's status and code, and the proxy's own paths."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if re.match(r"\| \d", line)]
    listed = {(int(status), code) for numbers, codes in rows
            for status in re.findall(r"\d+", numbers)
            for code in re.findall(r"`(\w+)`", codes)}  # fmt: skip
    own = ("proxy.desk.application", "proxy.desk.access.issuer", "proxy.scoring.server")
    for name in own:  # errors of their own are defined there
        import_module(name)
    kinds = _kinds(errors.ProxyError)
    assert len(kinds) > 20
    assert {(kind.status, kind.code) for kind in kinds} - {(503, "internal_error")} <= listed
    for path in (ALIVE[0], READY[0], "/pinocchio/v1/results/", "/pinocchio/v1/feedback"):
        assert path in text


def _kinds(kind: type[errors.ProxyError]) -> list[type[errors.ProxyError]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *_kinds(sub))]
