"""Claims: an open page reserves its reply for a minute, and other reviewers see that."""

from __future__ import annotations

import re

from proxy.desk.console.reviews import CLAIM_S, Claims
from tests.conftest import StartProxy
from tests.running.desk_client import (
    DESK,
    HOLD,
    bearer,
    decide,
    desk_url,
    held_id,
    logged_in,
    make_key,
    stranger,
)


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_two_reviewers_are_led_to_different_replies(start_proxy: StartProxy) -> None:
    """Bob sees in the queue and on the page that Alice has a reply
    open, and is led to another one. He may still decide on hers.
    """
    proxy = start_proxy(policy=HOLD.replace("desk", "claims"), **DESK)
    first, second, third = (held_id(proxy, f"p=0.{n}") for n in (1, 2, 3))
    alice, bob = (make_key(proxy, "reviewer", name) for name in ("alice", "bob"))
    with logged_in(proxy, alice) as hers, logged_in(proxy, bob) as his:
        page = hers.get(f"/console/reviews/{first}").text
        assert "data-claimed hidden" in page
        assert "alice</bdi>'s" in his.get("/console/reviews").text
        assert "alice</bdi>'s" not in hers.get("/console/reviews").text
        html = his.get(f"/console/reviews/{first}").text
        assert "<bdi>alice</bdi> has this reply open" in html
        his.get(f"/console/reviews/{third}")
        place = his.get(f"/console/reviews/{third}/next").headers["location"]
        assert place.startswith(f"/console/reviews/{second}?")  # the first is Alice's
        token = {"csrf": csrf_in(html)}
        renewed = his.post(f"/console/reviews/{first}/claim", data=token)
        assert renewed.json() == {"claimed_by": "alice"}
        assert decide(proxy, first, bob, verdict="approve").status_code == 200
        kept = hers.post(f"/console/reviews/{second}/claim", data={"csrf": csrf_in(page)})
        assert kept.json() == {"claimed_by": None}
    with stranger(proxy) as client:
        refused = client.post(f"/console/reviews/{second}/claim", headers={"origin": "http://x"})
        assert refused.status_code in (303, 401, 403)
        same = client.post(
            f"/console/reviews/{second}/claim",
            headers={**bearer(alice), "origin": desk_url(proxy)},
        )
        assert same.status_code == 200  # a program with a key may claim, too


def test_a_claim_ends() -> None:
    """A claim ends after a minute, with the decision, or when its owner opens another reply."""
    now = 0.0
    claims = Claims(lambda: now)
    assert claims.take("a", "alice") is None
    assert claims.take("a", "bob") == "alice"
    assert claims.take("a", "alice") is None  # her own
    assert claims.others("bob") == {"a": "alice"}
    now = CLAIM_S - 1
    assert claims.take("a", "alice") is None
    now += CLAIM_S - 1
    assert claims.take("a", "bob") == "alice"
    now += 2
    assert claims.take("a", "bob") is None
    assert claims.take("b", "bob") is None
    assert claims.others("alice") == {"b": "bob"}
    claims.end("b")
    assert claims.others("alice") == {}
