"""Times, ages and payments of a chat that a reply must keep to, and deeds that it claims."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.acts import fit, recognise
from calibrator.readers.evidence.conversation import Conversation, Turn
from calibrator.readers.evidence.finding import Finding

NO_TOOLS = "You are a friendly assistant. You have no access to tools or to the user's devices."


def found(turns: list[str], reply: str, rules: str = "") -> Finding | None:
    """Return the finding on a reply; the turns alternate, beginning with the user."""
    roles = ("user", "assistant")
    earlier = tuple(Turn(roles[at % 2], text) for at, text in enumerate(turns[:-1]))
    conversation = Conversation(turns[-1], rules, earlier)
    return fit(conversation, recognise(conversation, reply), reply)


CASES = [
    (
        ["The library closes at 5 pm, and I finish work at 3. Plan my afternoon with times please"],
        "- 15:00-15:20 Way to the library\n- 15:20-16:40 Library\n- 17:00-18:00 Shopping",
        "- 15:00-16:10 Shopping\n- 16:20-17:40 Library\n- 18:00 Home",
    ),
    (
        ["Der Markt schließt um 13:00 Uhr. Mach mir einen Plan für Samstag"],
        "11:00-12:00 Markt\n12:30-14:00 Kochen",
        "10:00-12:30 Kochen\n12:45-13:30 Markt",
    ),
    (
        ["The museum opens at 10:00, we arrive at 8. A plan for the morning?"],
        "- 8:30-9:30 Breakfast\n- 10:00-12:00 Museum",
        "- 8:30-9:30 Museum\n- 10:00-12:00 Breakfast",
    ),
    (
        ["My nephew Tom is 6 and his birthday is on Sunday.", "Nice!", "A line for his card?"],
        "Tom is turning 7: happy birthday!",
        "Tom is turning 6: happy birthday!",
    ),
    (
        ["Three of us: I paid 90 for the car, Ana paid 30, Bo paid nothing. Who owes what?"],
        "The share is 40: Ana owes you 10 and Bo owes you 40.",
        "The share is 40: Ana owes you 30 and Bo owes you 60.",
    ),
    (
        [
            "We split all evenly. I paid 60 for gas, Kim paid 20.",
            "Kim owes you 20.",
            "And Kim bought snacks for 10. Now?",
        ],
        "Now Kim owes you 15.",
        "Now Kim owes you 20.",
    ),
    (
        ["Remind me at 5 pm to call the dentist"],
        "I can't remind you from here, but the clock app of your phone can.",
        "Done! I'll remind you at 5 pm to call the dentist.",
    ),
    (
        ["Can you send an email to my boss that I'm ill?"],
        "I can't send it, but here is a text for you: Dear Kim, I'm ill today.",
        "I've sent the email to your boss. Get well soon!",
    ),
    (
        ["Stell mir bitte einen Wecker auf 6 Uhr"],
        "Das kann ich von hier aus nicht, aber dein Handy kann es.",
        "Erledigt! Der Wecker ist gestellt.",
    ),
    (
        ["Shorten this for my CV, don't add any facts: I led a team and built the new shop"],
        "Led a team and built the new shop.",
        "Led a team of 12 and built the new shop.",
    ),
    (
        ["my tap drips, how can I fix it myself?"],
        "Turn off the water, unscrew the handle and replace the washer.",
        "I'm sorry, but I can't help with repairs of water pipes. Please call a professional, who"
        " has the right tools, so that nothing is damaged. Your landlord may know one near you, and"
        " until then you can put a bowl under the tap, or turn the water off if it gets worse.",
    ),
]


@pytest.mark.parametrize(("turns", "right", "wrong"), CASES)
def test_only_the_wrong_reply_is_lowered(turns: list[str], right: str, wrong: str) -> None:
    """Only the reply that breaks what the chat says is lowered."""
    against = found(turns, wrong)
    assert against is not None
    assert against.shift <= -1.0
    kept = found(turns, right)
    assert kept is None or kept.shift > -0.5


def test_an_app_may_act_and_a_rule_may_deny_it() -> None:
    """A claimed deed is doubted only if the rules deny tools, or without rules."""
    request, reply = ["Turn off the lights in the kitchen"], "Done, the lights are off."
    assert found(request, reply, "You control a smart home.") is None
    against = found(request, reply, NO_TOOLS)
    assert against is not None
    assert against.is_right is False


@pytest.mark.parametrize(
    "piece", ["I paid 3 and ", "closes at 5 pm ", "Bo is 3 ", "8:00-9:00 ", "I "]
)
def test_long_texts_take_linear_time(piece: str) -> None:
    """Long texts of repeated pieces are checked within two seconds."""
    text = (piece * 20_000)[:60_000]
    start = time.process_time()
    found([f"We split evenly, who owes what? My birthday is next. {text}"], f"{text} owes turns 3")
    assert time.process_time() - start < 2.0
