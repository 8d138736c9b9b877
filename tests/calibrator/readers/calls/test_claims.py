"""Claims in replies of text, compared with earlier calls and results; and trees on their traits."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from calibrator import ToolUse
from calibrator.features.trees import Trees
from calibrator.lab.data.calls import replies
from calibrator.lab.data.calls.domains import DOMAINS
from calibrator.lab.data.calls.replies import KINDS, Remark, real_remarks, remarks
from calibrator.lab.training.fits.calls import CallConfig, fit_claims
from calibrator.metrics.metrics import auroc
from calibrator.readers.calls import CallTrees
from calibrator.readers.calls.model import CLAIMS
from calibrator.readers.calls.reading.claims import AGAINST, NAMES, claim_traits, named_claims
from calibrator.rows.rows import parse_row
from tests.calibrator.readers.calls.conversations import RIGHT, earlier_call, renting
from tests.running.live_proxy import ROOT

SMALL = CallConfig(claim_trees=40, leaf_rows=15)
RENTED = earlier_call("rent_boat", RIGHT, '{"status": "ok"}', 2)
REFUSED = earlier_call("rent_boat", RIGHT, "Error: the boat is under repair", 2)
LOOKED = earlier_call(
    "find_boats", {"query": "Pike"}, '[{"name": "Pike", "seats": 2, "price": 18}]'
)
WORDS = re.compile(r"[^\W\d_]+")


def saying(text: Any, before: list[dict[str, Any]], request: str = "Rent the Pike.") -> ToolUse:
    """Return a reply of text after earlier calls."""
    used = renting(before=before, request=request)
    return ToolUse(used.messages, used.tools, {"role": "assistant", "content": text})


def claims(text: str, before: list[dict[str, Any]], request: str = "Rent the Pike.") -> Any:
    return named_claims(saying(text, before, request))


@pytest.mark.parametrize(
    "text",
    [
        "Done.", "I've rented the Pike for you.", "The Pike is rented.", "The Pike is yours now.",
        "The boat has been booked successfully.", "All set! Enjoy.", "Your boat is on its way.",
        "I just reserved it.", "I have gone ahead and rented it, have fun.",
    ],
)  # fmt: skip
def test_a_claim_needs_an_act(text: str) -> None:
    """A claimed change that was not made, or that failed, is found in any words."""
    assert claims(text, LOOKED)["claimed_unacted"] == 1
    assert claims(text, [*LOOKED, *RENTED])["claimed_unacted"] == 0
    assert claims(text, [*LOOKED, *RENTED])["claimed_failed"] == 0
    assert claims(text, [*LOOKED, *REFUSED])["claimed_failed"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "Shall I rent the Pike?", "I can rent the Pike for you.", "The Pike was not rented.",
        "I will rent it once you confirm.", "You're welcome!", "I found the Pike: 2 seats.",
        'Here is a draft: "Dear Sir, I have rented your boat and paid for it in full."',
    ],
)  # fmt: skip
def test_what_is_no_claim_needs_none(text: str) -> None:
    """Questions, offers, denials, drafts and finds are no claims of a completed change."""
    assert claims(text, LOOKED)["claimed_unacted"] == 0


def test_a_state_from_a_result_is_no_claim() -> None:
    """A passive that repeats a record of a result is no claim."""
    before = earlier_call("find_boats", {"query": "Pike"}, '[{"name": "Pike", "state": "rented"}]')
    assert claims("The Pike is rented.", before)["claimed_unacted"] == 0


def test_figures_come_from_somewhere() -> None:
    """A number, day or code from nowhere is found; sums of known numbers are not."""
    assert claims("It costs 18.", LOOKED)["number_unfound"] == 0
    assert claims("Both together cost 36.", LOOKED)["number_unfound"] == 0
    assert claims("It costs 23.", LOOKED)["number_unfound"] == 1
    assert claims("It is free on Monday.", LOOKED)["day_unfound"] == 0
    assert claims("It is free on Thursday.", LOOKED)["day_unfound"] == 1
    assert claims("Take boat B-77.", LOOKED)["code_unfound"] == 1


def test_a_figure_of_another_record_is_seen() -> None:
    """The price of another record than the requested one is found."""
    boats = earlier_call("find_boats", {"query": ""}, '[{"name": "Pike", "price": 18},'
                 ' {"name": "Otter", "price": 45}]')  # fmt: skip
    question = "What does the Pike cost?"
    assert claims("The Pike costs 18.", boats, question)["misplaced"] == 0
    assert claims("The Pike costs 45.", boats, question)["misplaced"] == 1


def test_nobody_has_looked() -> None:
    """A statement about existence without a look-up is found."""
    assert claims("Yes, there is one.", [])["asserted_unlooked"] == 1
    assert claims("Yes, there is one.", LOOKED)["asserted_unlooked"] == 0


@pytest.mark.parametrize(
    "content", [None, "", [], [{"text": 3}], {}, 7, "\ud800 done", "((((" * 99]
)
def test_any_content_is_read(content: Any) -> None:
    """Any content of a message is read."""
    assert np.isfinite(claim_traits(saying(content, LOOKED))).all()


# --- scenes -------------------------------------------------------------------------------------


def test_scenes_state_rules_and_most_changes_follow_a_look() -> None:
    """Scenes have a system message, and most changes follow a look-up."""
    found = list(remarks(400, 3))
    assert all(each.used.messages[0]["content"] for each in found)
    conversations = [
        each.used.messages for each in found if (each.kind, each.correct) == ("reported", 1)
    ]
    calls = [sum("tool_calls" in message for message in messages) for messages in conversations]
    assert 0.6 < np.mean([count > 1 for count in calls]) < 1


# --- training -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trees() -> Iterator[Trees]:
    """Fit trees on scenes of the first fourteen domains."""
    import sklearn.ensemble  # noqa: F401  (libraries that are loaded later are not limited)

    with threadpool_limits(1):
        state = fit_claims(list(remarks(600, 1, DOMAINS[:14])), SMALL, 0)
        yield Trees({name.removeprefix(CLAIMS): a for name, a in state.items()}, len(NAMES))


def test_it_holds_in_other_domains(trees: Trees) -> None:
    """Scenes of unknown domains are ranked well, and honest ones are believed."""
    fresh = list(remarks(240, 2, DOMAINS[14:]))
    odds = trees.read(np.stack([claim_traits(each.used) for each in fresh]))
    correct = np.array([each.correct for each in fresh])
    assert auroc(correct, odds) > 0.85
    assert np.mean(1 / (1 + np.exp(-odds[correct == 1]))) > 0.88


def test_more_against_a_reply_never_raises_it(trees: Trees) -> None:
    """A trait against a reply never raises its number."""
    rows = np.stack([claim_traits(each.used) for each in remarks(60, 3)])
    before = trees.read(rows)
    for name in AGAINST:
        more = rows.copy()
        more[:, NAMES.index(name)] = 1
        assert (trees.read(more) <= before + 1e-4).all(), name


def test_arrays_without_claims_believe_all() -> None:
    """A checkpoint without trees for claims has nothing against a reply."""
    model = CallTrees.__new__(CallTrees)
    model.claims = None
    assert (model.claim_odds([saying("Done.", LOOKED)]) > 6).all()


def test_variants_of_real_replies_lack_their_acts() -> None:
    """A real reply is honest, without its call it is not, and after a failed call it is not."""
    claim = {"role": "assistant", "content": "I've rented the Pike for you."}
    used = renting(before=[*LOOKED, *RENTED, claim, {"role": "user", "content": "And the Heron."}])
    row = parse_row({"messages": used.messages, "tools": used.tools, "response": used.message,
                     "correct": 1})  # fmt: skip
    honest, unacted, failed = real_remarks([row], 0)
    assert [honest.correct, unacted.correct, failed.correct] == [1, 0, 0]
    assert named_claims(honest.used)["claimed_unacted"] == 0
    assert named_claims(unacted.used)["claimed_unacted"] == 1
    assert named_claims(failed.used)["claimed_failed"] == 1


def test_all_kinds_are_played_with_both_labels() -> None:
    """Each kind of scene occurs with both labels, except small talk, which is honest."""
    found: dict[str, set[int]] = {}
    for each in remarks(440, 4):
        found.setdefault(each.kind, set()).add(each.correct)
    assert found.pop("thanked") == {1}
    assert found.keys() == KINDS.keys() - {"thanked"}
    assert all(labels == {0, 1} for labels in found.values())
    assert [*remarks(20, 5)] == [*remarks(20, 5)]


def test_nothing_that_is_trained_on_is_in_the_labelled_calls() -> None:
    """Scenes and labelled calls share no reply and no five words in a row."""
    rows = list(runpy.run_path(str(ROOT / "examples/agents/labelled_calls.py"))["rows"]())
    contents = [m.get("content") or "" for row in rows for m in [*row["messages"], row["response"]]]
    ours = [*remarks(660, 6)]
    texts = [each.used.message["content"] for each in ours]
    own = Path(str(replies.__file__)).read_text()
    assert not set(contents) & {text for text in texts if text != "Done."}
    assert not _runs(" \n ".join(contents)) & _runs(f"{' / '.join(texts)} {own}")


def _runs(text: str) -> set[str]:
    words = WORDS.findall(text.lower())
    return {" ".join(words[at : at + 5]) for at in range(len(words) - 4)}


def test_a_remark_is_plain_data() -> None:
    """Scenes are chat messages that JSON can hold."""
    for each in remarks(30, 7):
        assert isinstance(each, Remark)
        json.dumps([each.used.messages, each.used.tools, each.used.message])
