"""Agreement of workers: a configuration applies at all of them or at none."""

from __future__ import annotations

import math

from proxy.http.workers.supervisor import OTHER_FILES, TOO_LATE, Agreement


def test_all_have_to_prepare_the_same() -> None:
    """A configuration is agreed on once the last worker prepared it; other votes do not count."""
    agreement = Agreement(2, "digest", [0, 1])
    agreement.note_vote(0, "digest")
    agreement.note_vote(7, None, ["nobody asked"])
    assert agreement.outcome == "pending"
    agreement.note_vote(1, "digest")
    assert agreement.outcome == "agreed"


def test_one_that_cannot_stops_all() -> None:
    """A worker that cannot prepare it stops all, and all get its reason."""
    agreement = Agreement(2, "digest", [0, 1])
    agreement.note_vote(0, None, ["proxy.yaml:3: no"])
    agreement.note_vote(1, "digest")
    assert (agreement.outcome, agreement.problems) == ("refused", ("proxy.yaml:3: no",))
    assert not agreement.read_again


def test_files_that_change_meanwhile_are_read_again() -> None:
    agreement = Agreement(2, "digest", [0])
    agreement.note_vote(0, "another")
    assert (agreement.outcome, agreement.problems) == ("refused", (OTHER_FILES,))
    assert agreement.read_again


def test_one_that_dies_is_not_waited_for() -> None:
    agreement = Agreement(2, "digest", [0, 1])
    agreement.note_vote(0, "digest")
    agreement.leave(1)
    assert agreement.outcome == "agreed"


def test_one_that_says_nothing_is_waited_for_only_so_long() -> None:
    agreement = Agreement(2, "digest", [0])
    agreement.look(0.0)
    assert agreement.outcome == "pending"
    agreement.look(math.inf)
    assert (agreement.outcome, agreement.problems) == ("refused", (TOO_LATE,))
