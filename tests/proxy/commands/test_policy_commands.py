"""`pinocchio certify`, `test`, `replay` and `check --schema` as a person runs them."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from policies import Facts, decide, load_certificate, load_policy
from proxy.commands.app import cli
from tests.builders.pictures import PNG, data_url

Json = dict[str, Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def write(path: Path, rows: list[Json]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def labelled(count: int, seed: int = 1, **more: Any) -> list[Json]:
    """Return scored rows that are right as often as they say, two to a question."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        confidence = round(rng.betavariate(0.7, 0.6), 4)
        rows.append(
            {
                "id": str(n),
                "question_id": f"q{n // 2}",
                "question": "?",
                "response": "an answer",
                "model": f"m{n % 2}",
                "domain": "law",
                "confidence": confidence,
                "calibrator": "embedded@1",
                "correct": int(rng.random() < confidence),
            }
            | more
        )
    return rows


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", labelled(2_400))


GATE = """
version: 1
name: gate
certificate: gate.certificate.json
rules:
  - {name: lawyers, when: {domain: "tax*"}, then: {hold: {queue: law}}}
  - {name: surely right, when: {confidence: {max_error: 0.1}}, then: deliver}
default: hold
"""


# --- certify ------------------------------------------------------------------------------------


def test_a_certificate_is_written_and_then_relied_on(tmp_path: Path, rows: Path) -> None:
    """A certificate made from labelled rows lets a policy deliver above the proved threshold."""
    policy = tmp_path / "gate.yaml"
    policy.write_text(GATE)
    certificate = tmp_path / "gate.certificate.json"
    done = run("certify", rows, "--max-error", 0.1, "--confidence", 0.9, "-o", certificate)
    assert done.exit_code == 0, done.output
    assert (
        "of all replies at or above it, at most 0.1 are wrong, with 0.9 confidence" in done.stdout
    )
    loaded = load_policy(policy)
    assert loaded.certificate is not None
    (grant,) = loaded.certificate.grants
    assert (grant.calibrator, grant.labels) == ("embedded@1", 1_200)
    sure = Facts(grant.threshold, "m", calibrator="embedded@1")
    assert decide(loaded, sure).rule == "surely right"


def test_rows_with_images_need_who_reads_them(tmp_path: Path) -> None:
    """B01: an unscored row with an image is named where the
    calibrator reads only text; one with its number counts.
    """
    unscored = {key: value for key, value in labelled(1)[0].items() if key != "confidence"}
    image = {"images": [data_url(PNG)]}
    path = write(tmp_path / "rows.jsonl", [unscored | image, *labelled(2_400, **image)])
    result = run("certify", path, "--max-error", 0.2, "--calibrator", "fake:0.5", "--json")
    assert f"{path}:1: the question has an image; this calibrator reads text only" in result.stderr
    assert json.loads(result.stdout)["labels"] == 1_200  # questions


def test_grants_for_models_and_rules_are_added_to_one_file(tmp_path: Path, rows: Path) -> None:
    """A later grant for the same model or rule replaces the earlier one, and others stay."""
    policy = tmp_path / "gate.yaml"
    policy.write_text(GATE)
    certificate = tmp_path / "c.json"
    base = ["certify", rows, "--max-error", 0.1, "--confidence", 0.9, "-o", certificate]
    for more in ([], ["--model", "m1"], ["--policy", policy, "--rule", "surely right"], []):
        done = run(*base, *more)
        assert done.exit_code == 0, done.output
    grants = json.loads(certificate.read_text())["grants"]
    scopes = [(grant["scope"]["model"], grant["scope"]["rule"]) for grant in grants]
    assert scopes == [("m1", None), (None, "surely right"), (None, None)]
    assert grants[0]["labels"] == 1_200
    assert len(grants[1]["scope"]["rule_digest"]) == 16


def test_json_says_the_same_to_machines(rows: Path) -> None:
    """`--json` prints one object with threshold, coverage and labels."""
    done = run("certify", rows, "--max-error", 0.1, "--confidence", 0.9, "--json")
    found = json.loads(done.stdout)
    assert 0.7 < found["threshold"] < 0.95
    assert 0.2 < found["coverage"] < 0.5
    assert (found["labels"], found["needed"]) == (1_200, None)


def test_too_few_labels_are_told_with_exit_status_3(tmp_path: Path) -> None:
    """With too few labels the command says what they prove and how many are missing, status 3."""
    rows = write(tmp_path / "few.jsonl", labelled(80, confidence=0.9, correct=1))
    done = run("certify", rows, "--max-error", 0.05)
    assert done.exit_code == 3
    assert "Nearest: 0 of the 40 replies at or above 0 are wrong." in done.stdout
    assert "In the best case (no further errors) 58 more labels would do." in done.stdout
    assert "would have proved --max-error 0.11, for 100.0% of the replies" in done.stdout
    assert run("certify", rows, "--max-error", 0.11).exit_code == 0
    found = json.loads(run("certify", rows, "--max-error", 0.05, "--json").stdout)
    assert (found["threshold"], found["needed"]) == (
        None,
        {
            "at_least": 58,
            "expected": 58,
            "start": 0.0,
            "accepted": 40,
            "wrong": 0,
            "is_hopeless": False,
            "provable_error": 0.11,
            "provable_coverage": 1.0,
        },
    )
    hopeless = write(tmp_path / "bad.jsonl", labelled(400, confidence=0.9, correct=0))
    output = run("certify", hopeless, "--max-error", 0.05).stdout
    assert "More labels will hardly help" in output
    assert "would have proved" not in output


def test_enough_labels_with_errors_are_told_the_number_that_proves_it(tmp_path: Path) -> None:
    """For 100 labels with 4 wrong the message has the number of labels that does prove 5 %."""
    path = tmp_path / "some.jsonl"

    def certify(right: int, wrong: int) -> Result:
        rows = labelled(2 * (right + wrong), confidence=0.9, correct=1)[::2]  # one of a question
        for row in rows[:wrong]:
            row["correct"] = 0
        return run("certify", write(path, rows), "--max-error", 0.05)

    found = re.search(r"best case \(no further errors\) (\d+)", certify(96, 4).stdout)
    assert found is not None
    assert certify(96 + int(found[1]), 4).exit_code == 0
    assert certify(95 + int(found[1]), 4).exit_code == 3


def test_few_labels_with_an_error_are_called_few(tmp_path: Path) -> None:
    """For one error among ten labels the message says how many more would do in the best case."""
    few = labelled(20, confidence=0.9, correct=1)
    for row in few[:2]:
        row["correct"] = 0
    done = run("certify", write(tmp_path / "few.jsonl", few), "--max-error", 0.1)
    assert done.exit_code == 3
    assert "Nearest: 1 of the 10 replies at or above 0.9 is wrong." in done.stdout
    assert "In the best case (no further errors) 50 more labels would do." in done.stdout
    assert "hardly help" not in done.stdout


def test_a_calibrator_that_cannot_rank_is_named(tmp_path: Path, rows: Path) -> None:
    """A calibrator that cannot rank is named, with a threshold or without."""
    rng = random.Random(3)
    shuffled = labelled(600)
    for row in shuffled:
        row["confidence"] = round(rng.random(), 4)
    chance = write(tmp_path / "chance.jsonl", shuffled)
    for max_error in (0.1, 0.7):
        done = run("certify", chance, "--max-error", max_error)
        assert "warning: the calibrator cannot rank these replies" in done.stderr
        assert "do not gate on it" in done.stderr
    found = json.loads(run("certify", chance, "--max-error", 0.1, "--json").stdout)["auroc"]
    assert found["low"] < 0.5 < found["high"]
    assert "cannot rank" not in run("certify", rows, "--max-error", 0.1).stderr


def test_splits_look_at_the_other_halves(rows: Path) -> None:
    """`--splits` prints share certified, mean error and median coverage of random halves."""
    arguments = ["certify", rows, "--max-error", 0.1, "--confidence", 0.9, "--splits", 20]
    found = json.loads(run(*arguments, "--json").stdout)
    assert found["splits"] == 20
    assert found["mean_error"] < 0.1
    assert "mean error" in run(*arguments).stdout


def test_rows_without_a_confidence_are_scored_first(tmp_path: Path) -> None:
    """Rows without a confidence are scored, and the certificate names the calibrator's version."""
    rows = labelled(200, correct=1)
    for row in rows:
        del row["confidence"], row["calibrator"]
    path, certificate = write(tmp_path / "rows.jsonl", rows), tmp_path / "c.json"
    done = run("certify", path, "--max-error", 0.05, "--calibrator", "fake:0.73", "-o", certificate)
    assert done.exit_code == 0, done.output
    (grant,) = json.loads(certificate.read_text())["grants"]
    assert "0.73" in grant["calibrator"]
    assert grant["labels"] == 100


def test_an_error_among_the_surest_does_not_end_the_search(tmp_path: Path) -> None:
    """One wrong reply at 0.95 among a thousand right ones at 0.8 does not prevent a threshold."""
    surest = [
        row | {"question_id": f"surest {n}", "correct": int(n > 0)}
        for n, row in enumerate(labelled(70, confidence=0.95))
    ]
    others = [
        row | {"question_id": f"other {n}", "id": f"other {n}"}
        for n, row in enumerate(labelled(1_000, confidence=0.8, correct=1))
    ]
    done = run("certify", write(tmp_path / "rows.jsonl", surest + others), "--max-error", 0.05)
    assert done.exit_code == 0, done.stdout
    assert "1 of them wrong" in done.stdout


def test_a_replay_of_no_usable_row_is_refused(tmp_path: Path) -> None:
    """A replay without a usable row ends with status 2, as an empty file does."""
    bad = write(tmp_path / "bad.jsonl", labelled(3, confidence=3))
    done = run("replay", "--policies", "observe", "--rows", bad)
    assert (done.exit_code, "3 of 3 rows could not be used" in done.stderr) == (2, True)
    assert "no labelled row in" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--max-error", 0.1, "-o", "/nowhere/c.json"], "there is no folder /nowhere"),
        (["--max-error", 0.1, "-o", "there/"], "there/ names a folder"),
        (["--max-error", 0.1, "-o", "{rows}"], "it is an input as well"),
        (["--max-error", 5], "max_error must be more than 0 and less than 1"),
        (["--max-error", 0.1, "--rule", "x"], "--rule needs --policy"),
        (
            ["--max-error", 0.1, "--policy", "helpdesk", "--rule", "unsuported"],
            "policy helpdesk has no rule 'unsuported'; did you mean 'unsupported'?",
        ),
        (["--max-error", 0.1, "--model", "none"], "no labelled row is within model none"),
        (["--max-error", 0.1, "--policy", "helpdsk", "--rule", "x"], "did you mean 'helpdesk'?"),
    ],
)
def test_unusable_arguments_are_one_sentence(
    rows: Path, arguments: list[object], problem: str
) -> None:
    """Unusable arguments give exit status 2 and a sentence."""
    done = run("certify", rows, *(str(each).format(rows=rows) for each in arguments))
    assert done.exit_code == 2
    assert problem in done.stderr


def test_a_certificate_is_for_one_calibrator(tmp_path: Path) -> None:
    """Rows of a calibrator without a name give a threshold and no certificate."""
    path = write(tmp_path / "rows.jsonl", labelled(2_400, calibrator=None))
    done = run("certify", path, "--max-error", 0.2, "-o", tmp_path / "c.json")
    assert done.exit_code == 2
    assert "a certificate is for one calibrator" in done.stderr
    assert not (tmp_path / "c.json").exists()


def test_numbers_with_and_without_opinions_are_certified_apart(tmp_path: Path) -> None:
    """Each calibrator among the rows gets a threshold of its own, with its name."""
    knowing = "embedded@1+opinion@2"
    rows = labelled(1_200) + labelled(2_400, calibrator=knowing)
    path, certificate = write(tmp_path / "rows.jsonl", rows), tmp_path / "c.json"
    done = run("certify", path, "--max-error", 0.2, "-o", certificate)
    assert done.exit_code == 0, done.output
    assert "embedded@1: 1,200 replies, 33.3% of all\nthreshold" in done.stdout
    assert f"{knowing}: 2,400 replies, 66.7% of all\nthreshold" in done.stdout
    granted = load_certificate(certificate)
    assert granted is not None
    assert [grant.calibrator for grant in granted.grants] == ["embedded@1", knowing]


@pytest.mark.parametrize("command", ["certify", "replay"])
def test_a_fault_of_many_rows_is_told_a_few_times(command: str, tmp_path: Path) -> None:
    """A fault of a thousand rows is printed a few times, before any figures."""
    rows = labelled(1_200, confidence=0.9, correct=1)
    for row in rows[:1_000]:
        row["confidence"] = 90
    path = write(tmp_path / "rows.jsonl", rows)
    wish = ["--max-error", 0.05] if command == "certify" else ["--policies", "observe"]
    files = [path] if command == "certify" else ["--rows", path]
    done = run(command, *files, *wish)
    lines = done.output.splitlines()
    assert lines[3].startswith("... and 997 more rows have the same fault: 'confidence' must be")
    assert lines[4] == "pinocchio: 1,000 of 1,200 rows could not be used"


def test_bad_rows_are_named_and_left_out(tmp_path: Path) -> None:
    """Unusable rows are reported, and the others certified."""
    rows = labelled(200, confidence=0.9, correct=1)
    rows[3]["confidence"], rows[5]["confidence"], rows[7]["correct"] = 7, "high", 2
    path = write(tmp_path / "rows.jsonl", rows)
    done = run("certify", path, "--max-error", 0.05)
    assert done.exit_code == 0, done.output
    assert "3 of 200 rows could not be used" in done.stderr
    assert f"{path}:4: 'confidence' must be from 0 to 1, not 7\n" in done.stderr
    assert f"{path}:6: 'confidence' must be a number, not 'high'\n" in done.stderr


# --- test ---------------------------------------------------------------------------------------


def test_fixtures_pass_differ_or_are_unusable(tmp_path: Path) -> None:
    """The exit status is 0, 1 or 2; a difference is shown with the rules that led to it."""
    fixture = (
        "name: unsure\nfacts: {confidence: 0.9, support: 0.1, model: m}\nexpect: {action: hold}\n"
    )
    path = tmp_path / "a.yaml"
    path.write_text(fixture)
    done = run("test", "helpdesk", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "ok    unsure\nfixtures that differ: 0 of 1\n")
    path.write_text(fixture.replace("hold", "deliver"))
    done = run("test", "helpdesk", tmp_path)
    assert done.exit_code == 1
    assert "action    expected deliver, got hold" in done.stdout
    assert "yes  unsupported: hold; support 0.1000 is below 0.3" in done.stdout
    found = json.loads(run("test", "helpdesk", tmp_path, "--json").stdout)
    assert found["differing"] == 1
    for policy, folder in (("helpdsk", tmp_path), ("helpdesk", tmp_path / "none")):
        done = run("test", policy, folder)
        assert done.exit_code == 2
        assert done.stderr


# --- replay and schema --------------------------------------------------------------------------


def test_a_replay_shows_what_would_change(rows: Path) -> None:
    """A replay prints both policies' actions, the changes between them, and costs."""
    done = run("replay", "--policies", "healthcare", "--before", "observe", "--rows", rows)
    assert done.exit_code == 0, done.output
    for part in (
        "healthcare@",
        "observe@",
        "replies are treated differently",
        "deliver by default -> hold by default",
        "review queue nurse",
        "USD; all by hand: 60,000.00 USD",
    ):
        assert part in done.stdout
    assert "lack" not in done.stdout
    output = run("replay", "--policies", "helpdesk", "--rows", rows).stdout
    assert "the record lacks 'basis' and 'support'" in output, "a confidence alone tells neither"
    rule = "{name: team, when: {team: support}, then: hold}"
    policy = rows.with_name("team.yaml")
    policy.write_text(f"version: 1\nname: team\nrules: [{rule}]\ndefault: deliver\n")
    output = run("replay", "--policies", policy, "--rows", rows).stdout
    assert "between 0.0% and 100.0% of 2,400 replies delivered" in output
    assert "2,400 replies lack 'team', which a rule looks at" in output


def test_a_replay_adds_the_papers_workflows(rows: Path) -> None:
    """The report has our own figures with the paper's beside them."""
    done = run("replay", "--policies", "observe", "--rows", rows, "--workflows")
    assert "paper, three models" in done.stdout
    assert "telehealth at example costs" in done.stdout


def test_rows_with_recorded_facts_are_replayed_as_recorded(tmp_path: Path) -> None:
    """Tool calls of a completion count in a replay, and so does everything under `facts`."""
    call = {"function": {"name": "send_email", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    by_reply, by_facts, wrong = labelled(3, confidence=0.99, correct=1)
    by_reply["response"] = {"choices": [{"message": message}]}
    by_facts["facts"] = {"model": "m", "tools": ["send_email"], "finish_reason": "tool_calls"}
    path = write(tmp_path / "rows.jsonl", [by_reply, by_facts])
    done = run("replay", "--policies", "healthcare", "--rows", path)
    assert "review queue physician: 2" in done.stdout
    assert "lack" not in done.stdout
    wrong["facts"] = {"modle": "m"}
    done = run(
        "replay", "--policies", "observe", "--rows", write(tmp_path / "wrong.jsonl", [wrong])
    )
    assert done.exit_code == 2
    assert "unknown key 'modle'" in done.stderr


def test_the_schema_is_printed_for_editors() -> None:
    """The schema is printed as one JSON document."""
    assert json.loads(run("check", "--schema").stdout)["title"] == "Pinocchio policy"


def test_the_commands_stand_beside_the_others() -> None:
    """`pinocchio --help` lists the commands and loads neither torch nor litellm."""
    code = (
        "import sys; sys.argv = ['pinocchio', '--help']\n"
        "import pinocchio.__main__ as m\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'litellm'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for command in ("certify", "test", "replay", "check", "serve", "score"):
        assert f" {command} " in done.stdout


def test_a_refusal_stands_in_the_response(tmp_path: Path) -> None:
    """A message is a refusal by its field, and a row of plain text is none."""
    rows = labelled(2, confidence=0.9)
    rows[1]["response"] = {"role": "assistant", "content": None, "refusal": "I cannot."}
    policy = tmp_path / "gate.yaml"
    rule = "{name: refusals, when: {refusal: true}, then: hold}"
    policy.write_text(f"version: 1\nname: gate\nrules: [{rule}]\ndefault: deliver\n")
    output = run("replay", "--policies", policy, "--rows", write(tmp_path / "r.jsonl", rows)).stdout
    assert "50.0% of 2 replies delivered" in output
    assert "lack" not in output
