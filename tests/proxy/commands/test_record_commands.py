"""`explain`, `replay --since`, `promote` and `label` on what a proxy recorded."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from policies import Certificate, LabelledScore, Scope, certify
from proxy.commands.app import cli as on_policies
from proxy.commands.app import cli as on_records
from proxy.commands.app import cli as serving
from proxy.commands.opening.exits import user
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.verdicts.labels import all_verdicts
from tests.running.client_keys import ask_with, make_key, wait_until_known
from tests.running.live_proxy import LiveProxy, ProxyProcess, until
from tests.servers.faulty_upstream import FaultyUpstream

DESK = """
version: 1
name: desk
rules:
  - {name: strict, when: {confidence: {below: 0.6}}, then: block, shadow: true}  # next month
  - {name: unsure, when: {confidence: {below: 0.3}}, then: clarify}
default: deliver
"""
Ask = Callable[..., str]


@pytest.fixture
def proxy(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[LiveProxy]:
    """Yield a proxy with a policy and a configuration in the test's folder."""
    (tmp_path / "desk.yaml").write_text(DESK)
    store = f"store: sqlite:///{tmp_path}/held.db\ncalibrator: {{checkpoint: 'fake:0.5'}}\n"
    (tmp_path / "proxy.yaml").write_text(f"policies: desk.yaml\n{store}")
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "desk.yaml")
    yield proxy
    proxy.stop()


@pytest.fixture
def ask(proxy: LiveProxy) -> Ask:
    """Ask, and return the request's id once it is recorded."""

    def ask(text: str, model: str = "ok", **fields: Any) -> str:
        id = proxy.ask(text, model, **fields).headers["x-pinocchio-request-id"]
        proxy.recorded(id, "facts")
        return id

    return ask


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs a command with the test's configuration."""

    def run(*arguments: object, answer: str = "") -> Result:
        app = {"reviews": serving, "replay": on_policies, "check": serving}
        cli = app.get(str(arguments[0]), on_records)
        words = [*map(str, arguments), "--config", str(tmp_path / "proxy.yaml")]
        return CliRunner().invoke(cli, words, input=answer)

    return run


Run = Callable[..., Result]

# --- explain ------------------------------------------------------------------------------------


def test_a_decision_is_explained_rule_by_rule(ask: Ask, run: Run) -> None:
    """`explain` says what was decided, what each rule says now, and whether that is the same."""
    id = ask("p=0.2 support=0.4 basis=context act=data task=unfamiliar")
    done = run("explain", id)
    assert done.exit_code == 0, done.output
    first, sure, based, then, shadow, now, *rules, last = done.stdout.splitlines()
    assert re.fullmatch(f"{id} at [-0-9]+ [:0-9]+ UTC: model ok, status 200", first)
    assert sure == "confidence 0.2000 (unfamiliar) by words@1"
    assert based == "based on context; support 0.4000; act data; an unfamiliar task"
    assert re.fullmatch(r"then  desk/unsure@\w+: clarify", then)
    assert shadow == "      rule strict in shadow would block"
    assert re.fullmatch(r"now  desk/unsure@\w+: clarify", now)
    assert rules == [
        "shadow  strict: would block; confidence 0.2000 is below 0.6",
        "   yes  unsure: clarify; confidence 0.2000 is below 0.3",
    ]
    assert last == "the same decision"


def test_a_changed_policy_is_told_apart(ask: Ask, run: Run, tmp_path: Path) -> None:
    """Where policy and record differ `explain` says so; another policy can be named."""
    id = ask("p=0.2")
    (tmp_path / "desk.yaml").write_text(DESK.replace("0.3", "0.1"))
    done = run("explain", id)
    assert done.stdout.splitlines()[-1] == "another decision than then"
    assert "no  unsure: confidence 0.2000 is not below 0.1" in done.stdout
    found = json.loads(run("explain", id, "--json", "--policy", "healthcare").stdout)
    assert (found["then"]["action"], found["now"]["action"]) == ("clarify", "hold")
    assert found["is_same"] is False
    assert found["facts"][0]["confidence"] == 0.2
    assert [rule["verdict"] for rule in found["rules"][0]][:2] == ["not matched", "not matched"]


def test_facts_that_the_record_lacks_are_named(ask: Ask, run: Run, tmp_path: Path) -> None:
    """A rule on tool arguments, which are not recorded, is marked as uncertain."""
    id = ask("p=0.9", "tools", tools=[{"type": "function", "function": {"name": "pay"}}])
    rule = "{name: pay, when: {tools: [{name: pay, arguments: {amount: {above: 9}}}]}, then: hold}"
    text = f"version: 1\nname: desk\nrules: [{rule}]\ndefault: deliver\n"
    (tmp_path / "desk.yaml").write_text(text)
    done = run("explain", id)
    assert "the record lacks what a rule looks at: arguments" in done.stdout
    assert "yes  pay: hold" in done.stdout, "what nobody can read is not waved through"
    warning, last = done.stdout.splitlines()[-2:]
    assert warning == "what it would be depends on that: hold by rule 'pay' or deliver by default"
    assert last == "whether the decision is the same cannot be told"
    found = json.loads(run("explain", id, "--json").stdout)
    assert (found["now"], found["is_same"], found["lacks"]) == (None, None, ["arguments"])


def test_what_the_same_version_decided_stands_without_its_facts(
    upstream: FaultyUpstream, run: Run, tmp_path: Path
) -> None:
    """A rule on unrecorded arguments is not tried again for
    the version that decided, as it would match anything.
    """
    rule = "{name: pay, when: {tools: [{name: pay, arguments: {amount: {above: 9}}}]}, then: hold}"
    text = f"version: 1\nname: desk\nrules: [{rule}]\ndefault: deliver\n"
    (tmp_path / "desk.yaml").write_text(text)
    store = f"store: sqlite:///{tmp_path}/held.db\ncalibrator: {{checkpoint: 'fake:0.5'}}\n"
    (tmp_path / "proxy.yaml").write_text(f"policies: desk.yaml\n{store}")
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "desk.yaml")
    try:
        fields: Any = {"tools": [{"type": "function", "function": {"name": "pay"}}]}
        answer = proxy.ask("p=0.9", "tools", **fields)
        id = answer.headers["x-pinocchio-request-id"]
        proxy.recorded(id, "facts")
    finally:
        proxy.stop()
    done = run("explain", id)
    assert "now   the same version of the policy; its rules look at arguments" in done.stdout
    assert done.stdout.splitlines()[-1] == "the same decision"
    found = json.loads(run("explain", id, "--json").stdout)
    assert found["now"] == found["then"]
    assert (found["is_same"], found["lacks"]) == (True, ["arguments"])


def test_a_held_call_is_explained_by_its_arguments(
    upstream: FaultyUpstream, run: Run, tmp_path: Path
) -> None:
    """While a held reply is stored, rules are tried on its arguments."""
    rules = """
  - {name: small, when: {tools: [{name: get_weather, arguments: {city: Rome}}]}, then: deliver}
  - {name: far, when: {tools: [{name: "get_*", arguments: {city: "p=*"}}]}, then: hold}
"""
    (tmp_path / "desk.yaml").write_text(f"version: 1\nname: desk\nrules:{rules}default: deliver\n")
    store = f"store: sqlite:///{tmp_path}/held.db\ncalibrator: {{checkpoint: 'fake:0.5'}}\n"
    (tmp_path / "proxy.yaml").write_text(f"policies: desk.yaml\n{store}")
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "desk.yaml")
    try:
        answer = proxy.ask("p=0.2", "tools")
        assert answer.status_code == 422
        id = answer.headers["x-pinocchio-request-id"]
        proxy.recorded(id, "facts")
    finally:
        proxy.stop()
    output = run("explain", id).stdout
    assert "    no  small: no tool call matches" in output
    assert "   yes  far: hold; get_weather matches get_*, city" in output
    assert "the same decision" in output
    assert "the record lacks" not in output
    assert "not tried again" not in output
    found = json.loads(run("explain", id, "--json").stdout)
    assert (found["is_same"], found["lacks"]) == (True, [])
    with closing(sqlite3.connect(tmp_path / "held.db")) as store_file, store_file:
        store_file.execute("UPDATE held_replies SET reply = x''")
    assert "not tried again" in run("explain", id).stdout, "its content is no longer kept"


def test_a_policy_of_another_name_is_named(ask: Ask, run: Run, tmp_path: Path) -> None:
    """Other commands do not know a policy of `serve --policy`, and say which one they miss."""
    id = ask("p=0.2")
    assert "is not in this configuration" not in run("explain", id).stdout
    (tmp_path / "desk.yaml").write_text(DESK.replace("name: desk", "name: other"))
    assert "policy desk is not in this configuration (it may have" in run("explain", id).stdout
    done = run("replay", "--policies", tmp_path / "desk.yaml", "--since", "1h")
    assert "policy desk, which is not in this configuration (it may" in done.stderr
    assert "decided on 1 of 1 reply, not other; to compare with it, add --before" in done.stderr
    beside = ("--before", tmp_path / "desk.yaml", "--since", "1h")
    assert "decided on" not in run("replay", "--policies", "observe", *beside).stderr
    (tmp_path / "desk.yaml").write_text(DESK)
    assert "decided on" not in run("replay", "--policies", "observe", "--since", "1h").stderr
    named = run("explain", id, "--policy", tmp_path / "desk.yaml").stdout
    assert "is not in this configuration" not in named


def test_several_choices_are_explained(ask: Ask, run: Run) -> None:
    """Each choice is explained with its own rules, and the strictest decision counts."""
    id = ask("p=0.2|p=0.9", n=2)
    done = run("explain", id)
    assert "now choice 0,  desk/unsure@" in done.stdout
    assert "now choice 1,  desk/default@" in done.stdout
    assert done.stdout.splitlines()[-1] == "the same decision"


@pytest.mark.parametrize(
    ("then", "ending"),
    [
        ("{escalate: {to: say p=0.9}}", "then  desk/default@"),
        ("{escalate: {to: say p=0.1, otherwise: block}}", "then  desk/unsure@"),
        ("{escalate: {to: status-500, otherwise: block}}", "then  desk/unsure@"),
    ],
)
def test_an_escalation_is_explained_by_the_reply_that_led_to_it(
    upstream: FaultyUpstream, tmp_path: Path, run: Run, then: str, ending: str
) -> None:
    """An escalation counts as the same decision, although its end depends on another reply."""
    (tmp_path / "desk.yaml").write_text(DESK.replace("then: clarify", f"then: {then}"))
    config = f"policies: desk.yaml\nstore: sqlite:///{tmp_path}/held.db\n"
    (tmp_path / "proxy.yaml").write_text(config + "calibrator: {checkpoint: 'fake:0.5'}\n")
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "desk.yaml")
    id = proxy.ask("p=0.2").headers["x-pinocchio-request-id"]
    proxy.recorded(id, "facts")
    proxy.stop()
    output = run("explain", id).stdout
    assert ending in output
    assert "now  desk/unsure@" in output
    assert output.splitlines()[-1] == "the same decision"


def test_a_withdrawn_certificate_is_not_relied_on(
    ask: Ask, run: Run, tmp_path: Path, proxy: LiveProxy
) -> None:
    """`explain` decides as the proxy would now, without withdrawn grants."""
    id = ask("p=0.95")
    rule = "{name: sure, when: {confidence: {max_error: 0.1}}, then: deliver}"
    gate = f"version: 1\nname: gate\ncertificate: c.json\nrules: [{rule}]\ndefault: block\n"
    (tmp_path / "gate.yaml").write_text(gate)
    rows = [LabelledScore(str(n), 0.9, True) for n in range(50)]
    grant = certify(rows, 0.1).grant("words@1", Scope())
    (tmp_path / "c.json").write_text(Certificate((grant,)).to_json())
    assert "yes  sure: deliver" in run("explain", id, "--policy", tmp_path / "gate.yaml").stdout
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    findings.withdraw(Withdrawal(grant.digest, "gate", "all replies", "scores_drifted", 0.0))
    findings.close()
    output = run("explain", id, "--policy", tmp_path / "gate.yaml").stdout
    assert "no certificate speaks about this reply" in output


def test_what_was_not_decided_on_says_why(ask: Ask, run: Run, proxy: LiveProxy) -> None:
    """An error of upstream's has a record without facts, and `explain` says so."""
    id = ask("p=0.2", "status-429")
    done = run("explain", id)
    assert done.stdout.splitlines()[-1] == "no policy decided on it: upstream_status"
    assert json.loads(run("explain", id, "--json").stdout)["now"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["explain", "req_no"], 1, "there is no record of req_no"),
        (["explain", "req_no", "--policy", "helpdsk"], 2, "did you mean 'helpdesk'?"),
        (["label", "req_no", "correct"], 1, "there is no record of req_no"),
        (["label", "req_no", "perhaps"], 2, "perhaps"),
        (["label", "req_no"], 2, "there is no file req_no; to label one reply, say"),
        (["label"], 2, "say what to label: ID correct, ID wrong, a FILE of labels, or --fetch"),
        (["label", "--feedback"], 2, "--feedback is for a FILE of labels"),
        (["label", "req_no", "--fetch"], 2, "--fetch takes no ID, no FILE and no --feedback"),
        (["replay", "--policies", "observe", "--since", "soon"], 2, "such as 90m, 12h or 30d"),
        (["replay", "--policies", "observe"], 2, "--rows or --since"),
        (["promote", "no.yaml"], 2, "the policy file no.yaml cannot be read: No such file"),
        (["promote", "helpdesk"], 2, "helpdesk is a pack, and packs cannot be promoted: copy it"),
    ],
)
def test_mistakes_are_one_sentence(
    proxy: LiveProxy, run: Run, arguments: list[str], status: int, problem: str
) -> None:
    """Mistakes give one sentence and the exit status of their kind."""
    done = run(*arguments)
    assert (done.exit_code, problem in done.stderr) == (status, True), done.output
    assert "Traceback" not in done.stderr


def test_verdicts_of_a_file_count_as_those_of_the_command(
    proxy: LiveProxy, ask: Ask, run: Run, tmp_path: Path
) -> None:
    """All verdicts of a file are stored at once, and none if a line is broken."""
    ids = [ask("p=0.9"), ask("p=0.2")]
    file = tmp_path / "graded.jsonl"
    lines = [{"request_id": id, "correct": n == 0} for n, id in enumerate(ids)]
    for broken in ("{", '{"request_id": "req_1"}', '{"request_id": "req_1", "correct": "yes"}'):
        file.write_text("\n".join([json.dumps(lines[0]), "", broken]))
        done = run("label", file)
        assert done.exit_code == 2
        assert f"{file}:3" in done.stderr
    file.write_text("\n".join(map(json.dumps, [*lines, {"request_id": "req_no", "correct": 1}])))
    done = run("label", file, "--as", "ann")
    assert done.stdout == "2 verdicts of ann stored\n"
    assert f"{file}:3: there is no record of req_no" in done.stderr
    assert done.exit_code == 1
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    stored = all_verdicts(findings.engine)
    findings.close()
    assert stored == [(ids[0], "ann", True), (ids[1], "ann", False)]


def test_a_verdict_is_a_reviewers_and_says_what_it_replaces(
    proxy: LiveProxy, ask: Ask, run: Run
) -> None:
    """A verdict is the machine user's by default, and stands beside another reviewer's."""
    id = ask("p=0.9")
    outputs = [
        run("label", id, *arguments).stdout
        for arguments in (["wrong"], ["correct"], ["wrong", "--as", "ann"])
    ]
    assert outputs == [
        f"{id} is wrong, says {user()}\n",
        f"{id} is correct, says {user()}, who said wrong before\n",
        f"{id} is wrong, says ann\n",
    ]
    findings = VerdictStore(f"sqlite:///{proxy.store_path}")
    stored = all_verdicts(findings.engine)
    findings.close()
    assert stored == [(id, user(), True), (id, "ann", False)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "req_1"],
        ["reviews", "list"],
        ["reviews", "show", "chatcmpl-held-1"],
        ["reviews", "approve", "chatcmpl-held-1"],
        ["reviews", "reject", "chatcmpl-held-1"],
        ["label", "req_1", "wrong"],
    ],
)
def test_without_a_record_nothing_is_made(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    """A missing store is reported and not created, as the folder may be the wrong one."""
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{tmp_path}/none.db\n")
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (8, "")
    assert f"there is no record: {tmp_path}/none.db does not exist; go to" in done.stderr
    assert not (tmp_path / "none.db").exists()


# --- replay -------------------------------------------------------------------------------------


def test_a_record_is_replayed_beside_the_configured_policy(
    ask: Ask, run: Run, tmp_path: Path
) -> None:
    """A replay shows what would change, and what verdicts say about the delivered replies."""
    ids = [ask(f"p=0.{tenths}") for tenths in range(1, 10)]
    ask("?", "status-500")
    for id, label in ((ids[8], "correct"), (ids[4], "wrong"), (ids[0], "wrong")):
        assert run("label", id, label).exit_code == 0
    done = run("replay", "--policies", "healthcare", "--since", "1h")
    assert done.exit_code == 0, done.output
    for line in (
        "7 of 9 replies are treated differently",
        "desk@",
        "77.8% of 9 replies delivered",
        "1 of 2 labelled are wrong",
        "review queue nurse",
    ):
        assert line in done.stdout, done.stdout
    same = run("replay", "--policies", tmp_path / "desk.yaml", "--since", "1h").stdout
    assert "0 of 9 replies are treated differently" in same


def test_a_teams_policy_is_replayed_on_its_own_traffic(
    upstream: FaultyUpstream, run: Run, tmp_path: Path
) -> None:
    """By default a replay uses the requests that this policy decided on, with `--team` that
    team's. Each is compared with the policy that it had, and what is left out is reported.
    """
    (tmp_path / "desk.yaml").write_text(DESK)
    more: dict[str, Any] = {"keys": "required", "teams": {"support": {"policy": "helpdesk"}}}
    upstreams = f'{{faulty: {{base_url: "{upstream.base_url}", api_key: x}}}}'
    (tmp_path / "proxy.yaml").write_text(
        f"upstreams: {upstreams}\nmodels: [{{match: '*', upstream: faulty}}]\nkeys: required\n"
        f"policies: desk.yaml\nstore: sqlite:///{tmp_path}/held.db\n"
        "teams: {support: {policy: helpdesk}}\n"
    )
    proxy = LiveProxy(
        upstream.base_url,
        tmp_path,
        policy=tmp_path / "desk.yaml",
        upstream={"api_key": "x"},
        waits=False,
        **more,
    )
    try:
        keys = [make_key(proxy.store_path, team=team)[0] for team in ("support", None)]
        for secret, texts in zip(keys, ("p=0.9", "p=0.9 p=0.8"), strict=True):
            wait_until_known(proxy.base_url, secret)
            for text in texts.split():
                id = ask_with(proxy.base_url, secret, text).headers["x-pinocchio-request-id"]
                proxy.recorded(id, "facts")
    finally:
        proxy.stop()
    own = run("replay", "--policies", "helpdesk", "--since", "1h")
    assert "0 of 1 reply" in own.stdout, own.output
    notice = "2 requests that other policies than helpdesk decided on: left out; see --all"
    assert notice in own.stderr
    teams = run("replay", "--policies", "observe", "--since", "1h", "--team", "support")
    assert "of 1 reply" in teams.stdout, teams.output
    assert "helpdesk@" in teams.stdout
    every = run("replay", "--policies", "helpdesk", "--since", "1h", "--all")
    assert "of 3 replies" in every.stdout, every.output
    nobody = run("replay", "--policies", "observe", "--since", "1h", "--team", "sales")
    assert nobody.exit_code == 2
    assert "there is no team 'sales'; known: support" in nobody.output


def test_a_replay_of_older_records_says_what_they_lack(
    ask: Ask, run: Run, proxy: LiveProxy
) -> None:
    """Records of older versions count with the facts that they have."""
    ask("p=0.9")
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("UPDATE exchanges SET facts = NULL")
    done = run("replay", "--policies", "healthcare", "--since", "1h", "--before", "observe")
    assert "1 reply lacks 'tools', which a rule looks at" in done.stdout


GATE = """
version: 1
name: gate
rules:
  - name: large
    when: {tools: [{name: "pay*", arguments: {amount: {above: 9}}}]}
    then: {hold: {queue: approvals}}
default: deliver
"""


def test_a_replay_takes_no_missing_argument_for_a_match(
    upstream: FaultyUpstream, run: Run, tmp_path: Path
) -> None:
    """A decision of the same version stays; what another one would say of a call is a range."""
    (tmp_path / "gate.yaml").write_text(GATE)
    store = f"store: sqlite:///{tmp_path}/held.db\ncalibrator: {{checkpoint: 'fake:0.5'}}\n"
    (tmp_path / "proxy.yaml").write_text(f"policies: gate.yaml\n{store}")
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "gate.yaml")
    tools: Any = {"tools": [{"type": "function", "function": {"name": "pay"}}]}
    try:
        answers = [proxy.ask(text, "tools", **tools) for text in ("p=0.9", "p=0.8", "p=0.7")]
        answers.append(proxy.ask("p=0.9"))
        for each in answers:
            proxy.recorded(each.headers["x-pinocchio-request-id"], "facts")
    finally:
        proxy.stop()
    assert {each.headers["x-pinocchio-action"] for each in answers} == {"deliver"}
    whole = "100.0% of 4 replies delivered"
    same = run("replay", "--policies", tmp_path / "gate.yaml", "--since", "1h")
    assert same.stdout.count(whole) == 2, same.output
    assert "0 of 4 replies are treated differently" in same.stdout
    assert "lack" not in same.stdout
    (tmp_path / "other.yaml").write_text(GATE.replace("above: 9", "above: 99"))
    other = run("replay", "--policies", tmp_path / "other.yaml", "--since", "1h").stdout
    assert "between 25.0% and 100.0% of 4 replies delivered" in other
    assert "3 of them cannot be told: the record lacks 'arguments'" in other
    assert "review queue approvals: 0 to 3 (0.0% to 75.0%)" in other
    assert "0 to 3 of 4 replies are treated differently" in other


# --- promote ------------------------------------------------------------------------------------


def test_a_rule_is_promoted_after_its_counts_were_shown(ask: Ask, run: Run, tmp_path: Path) -> None:
    """`promote` shows agreement and verdicts, and then changes one word in the file."""
    ids = [ask(text) for text in ("p=0.2", "p=0.5", "p=0.55", "p=0.9")]
    run("label", ids[1], "wrong")
    path = tmp_path / "desk.yaml"
    output = run("promote", path, "--rule", "strict", answer="n\n")
    assert output.exit_code == 1, "the answer was no"
    assert "was not changed" in output.stderr
    head, first, *_ = output.stdout.splitlines()
    assert first == "  once live, rule 'strict' would block 3 of 4 (75.0%)"
    assert head == "4 replies decided by this version of policy desk, last 30d"
    for line in (
        "2  would block, was deliver: differs",
        "1  would block, was clarify: differs",
        "0 of 3 agree with what was done",
        "of those that differ, 1 has a verdict and 1 was wrong",
        "promote strict?",
    ):
        assert line in output.stdout, output.stdout
    assert path.read_text() == DESK, "the answer was no"
    run("promote", path, "--rule", "strict", "--dry-run")
    assert path.read_text() == DESK
    done = run("promote", path, "--rule", "strict", "--yes")
    assert "rule 'strict' is live" in done.stdout
    assert path.read_text() == DESK.replace("shadow: true", "shadow: false")
    again = run("promote", path, "--rule", "strict", "--yes")
    assert (again.exit_code, "is not in shadow" in again.stderr) == (2, True)


def test_a_policy_is_promoted_and_says_what_it_did_not_do(
    upstream: FaultyUpstream, tmp_path: Path, run: Run
) -> None:
    """Promoting a shadow policy reports that missing scores, which were delivered, will be held."""
    text = DESK.replace("name: desk\n", "name: desk\nmode: shadow\n")
    (tmp_path / "desk.yaml").write_text(text)
    (tmp_path / "proxy.yaml").write_text(
        f"store: sqlite:///{tmp_path}/held.db\ncalibrator: {{checkpoint: 'fake:0.5'}}\n"
    )
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=tmp_path / "desk.yaml")
    ids = [proxy.ask(f"p={c}").headers["x-pinocchio-request-id"] for c in (0.2, 0.9, 0.95)]
    until(lambda: proxy.recorded(ids[-1], "facts"))
    proxy.stop()
    done = run("promote", tmp_path / "desk.yaml", "--yes")
    for line in (
        "2  would deliver, was deliver: agrees",
        "1  would clarify, was deliver: differs",
        "2 of 3 agree with what was done",
        "without a score, a reply is then: hold",
        "policy desk is live",
    ):
        assert line in done.stdout, done.stdout
    assert "mode: enforce" in (tmp_path / "desk.yaml").read_text()


def test_without_traffic_nothing_speaks_for_a_promotion(ask: Ask, run: Run, tmp_path: Path) -> None:
    """Without traffic a dry run says so, since `0 of 0 agree` would read as no objection."""
    ask("p=0.9")
    (tmp_path / "new.yaml").write_text(DESK.replace("name: desk\n", "name: new\nmode: shadow\n"))
    output = run("promote", tmp_path / "new.yaml", "--dry-run").stdout
    assert "0 replies decided by this version of policy new" in output
    assert "nothing shows yet what it would do" in output
    assert "agree with what was done" not in output


# --- warnings -----------------------------------------------------------------------------------


def test_check_prints_warnings_and_passes(run: Run, tmp_path: Path) -> None:
    """`check` names a rule that another one shadows, by file and line, and its status stays 0."""
    rules = "[{name: a, when: {n: 1}, then: hold},\n  {name: b, when: {n: 1}, then: block}]"
    text = f"version: 1\nname: desk\nrules: {rules}\ndefault: deliver\n"
    (tmp_path / "desk.yaml").write_text(text)
    config = f"policies: desk.yaml\nstore: sqlite:///{tmp_path}/held.db\n"
    (tmp_path / "proxy.yaml").write_text(config + "calibrator: {checkpoint: 'fake:0.5'}\n")
    done = run("check")
    assert done.exit_code == 0, done.output
    assert "all streams are buffered by rule 'a'" in done.stdout
    assert f"warning: {tmp_path}/desk.yaml:4: rule 'b' can never match: rule 'a'" in done.stdout


def test_policies_of_one_name_are_warned_of(run: Run, tmp_path: Path) -> None:
    """Two policies of one name give a warning, since naming it gets the first one."""
    (tmp_path / "desk.yaml").write_text(DESK.replace("name: desk\n", "name: helpdesk\n"))
    config = (
        "upstreams: {demo: {demo: true}}\nmodels: [{match: '*', upstream: demo}]\nkeys: required\n"
        f"policies: desk.yaml\nstore: sqlite:///{tmp_path}/held.db\n"
        "calibrator: {checkpoint: 'fake:0.5'}\n"
    )
    for policy, is_told in (("desk.yaml", False), ("helpdesk", True)):
        (tmp_path / "proxy.yaml").write_text(f"{config}teams: {{a: {{policy: {policy}}}}}\n")
        done = run("check")
        assert done.exit_code == 0, done.output
        warning = "warning: 2 policies are called 'helpdesk': x-pinocchio-policy and `explain` take"
        assert (warning in done.stdout) is is_told
    with ProxyProcess(tmp_path, (tmp_path / "proxy.yaml").read_text()) as server:
        until(lambda: server.lines("policies_share_a_name"))


def test_serve_logs_the_warnings_once_it_is_ready(run: Run, tmp_path: Path) -> None:
    """`serve` logs the warnings of `check` once it is ready."""
    rules = "[{name: a, when: {n: 1}, then: hold},\n  {name: b, when: {n: 1}, then: block}]"
    text = f"version: 1\nname: desk\nrules: {rules}\ndefault: deliver\n"
    (tmp_path / "desk.yaml").write_text(text)
    config = f"policies: desk.yaml\nstore: sqlite:///{tmp_path}/held.db\n"
    with ProxyProcess(tmp_path, config + "calibrator: {checkpoint: 'fake:0.5'}\n") as server:
        until(lambda: server.lines("policy_warning"))
        [line] = server.lines("policy_warning")
    assert (line["policy"], line["level"]) == ("desk", "warning")
    assert "rule 'b' can never match: rule 'a'" in line["warning"]
