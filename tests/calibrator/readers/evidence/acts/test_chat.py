"""The fit of a reply to a chat: tone, form, memory, address, edited texts."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.acts import fit, has_only_its_text, recognise
from calibrator.readers.evidence.conversation import Conversation, Turn
from calibrator.readers.evidence.finding import Finding

RIDE = (
    "The ferry to the island leaves from the small pier behind the market hall, and the last one"
    " goes back at eight, so you should be there a little earlier than that."
)


def found(
    request: str, reply: str, earlier: tuple[tuple[str, str], ...] = (), rules: str = ""
) -> Finding | None:
    """Return the finding on a reply; `earlier` has pairs of a request and its reply."""
    turns = tuple(
        Turn(role, text)
        for pair in earlier
        for role, text in zip(("user", "assistant"), pair, strict=True)
    )
    conversation = Conversation(request, rules, turns)
    return fit(conversation, recognise(conversation, reply), reply)


def is_against(finding: Finding | None) -> bool:
    """Return whether a finding clearly speaks against a reply."""
    return finding is not None and finding.shift <= -1.0


CASES = [
    (
        "my grandfather passed away on sunday and i can't focus at work",
        "I'm very sorry for your loss. Take the time that you need.",
        "Wow, great news! Enjoy the free time.",
    ),
    (
        "I got the job at the bakery, starting in spring!",
        "Congratulations! What will you bake first?",
        "I'm so sorry to hear that. Bakeries can be hard places.",
    ),
    (
        "Ich habe die Prüfung bestanden!",
        "Herzlichen Glückwunsch!",
        "Das tut mir sehr leid. Vielleicht klappt es beim nächsten Mal.",
    ),
    (
        "I forgot to water the plants again and now two of them look dead",
        "Cut off the dry leaves and water them from below; many plants recover.",
        "You're so lazy, no wonder. Cut off the dry leaves.",
    ),
    (
        "argh, this train is late again",
        "Oh no! Is there at least a warm place to wait for you?",
        "A train is a series of connected vehicles that runs on a track and transports people or"
        " freight. The first public railway opened in England.",
    ),
    (
        "Suggest three questions for an interview with a baker. Only questions, please.",
        "- When do you get up?\n- What do you bake best?\n- Who taught you?",
        "Bakers get up early. Their work is hard. You could talk about bread.",
    ),
    (
        "Compare tents and vans for a family trip in a small table.",
        "| | Tent | Van |\n|---|---|---|\n| Price | low | high |",
        "A tent is cheap and light. A van is dear and dry. Both are fun.",
    ),
    (
        "Train or plane from Lyon to Turin? Give me one clear recommendation.",
        "Take the train: it is nearly as fast, and you see the Alps.",
        "It depends. Both options have advantages.",
    ),
    (
        "Write a haiku about a lighthouse",
        "Light turns in the fog,\na gull sleeps on the railing,\nships pass without sound.",
        "The lighthouse stands upon the rock and shines all through the night,\n"
        "the sailors on the stormy sea are grateful for its light,\n"
        "the keeper climbs the many stairs and polishes the lamp,\n"
        "the walls are old, the wind is cold, the little rooms are damp.",
    ),
    (
        "Schreib eine kurze Absage an Herrn Okafor, bitte per Sie.",
        "Sehr geehrter Herr Okafor, leider können wir Ihnen den Platz nicht anbieten.",
        "Sehr geehrter Herr Okafor, leider können wir dir den Platz nicht anbieten.",
    ),
    (
        "Write a short note to Marguerite that the meeting is moved.",
        "Hi Marguerite,\nthe meeting is moved. See you!",
        "Hi Bernadette,\nthe meeting is moved. See you!",
    ),
    (
        'Translate into German: "The lift is not working today, please do not use it."',
        '"Der Aufzug ist heute außer Betrieb, bitte nicht benutzen."',
        '"Der Aufzug ist heute in Betrieb, bitte benutzen Sie ihn gern."',
    ),
    (
        'Rewrite politely: "We ordered 40 chairs and got 36. Send the rest by 3 May."',
        "We ordered 40 chairs and received 36. Could you please send the rest by 3 May?",
        "We ordered 50 chairs and received 36. Could you please send the rest by 3 May?",
    ),
    (
        'Correct only the mistakes: "They was late because the bus have broken down."',
        "They were late because the bus had broken down.",
        "They was late because the bus had broken down.",
    ),
    (
        "How do I kill the moss on my roof?",
        "Brush it off on a dry day and rinse the tiles.",
        "I'm sorry, but I can't assist with anything that involves killing living things.",
    ),
    (
        "Any ideas for lunch? My flatmate is lactose intolerant.",
        "Lentil soup with oat cream and parsley, dairy-free and quick.",
        "Lentil soup with a spoon of sour cream and parsley, done in no time.",
    ),
    (
        "I need a vegan dessert recipe for six, nothing fancy.",
        "Bake apples with coconut butter and oat milk custard instead of cream.",
        "Bake apples with butter and honey, and serve them with vanilla custard.",
    ),
    (
        "Make this note sound polite and professional: 'send me the keys back, now'",
        "Dear Ms Varga, could you please return the keys at your earliest convenience?",
        "Hey, could you please send the keys back? Thx \U0001f609",
    ),
    (
        "Wie sage ich der Vermieterin auf Deutsch, dass ich später komme?",
        "Sehr geehrte Frau Kern, ich komme heute leider später. Passt es Ihnen um acht?",
        "Sehr geehrte Frau Kern, ich komme heute leider später. Passt es dir um acht?",
    ),
    (
        "Turn these notes into a short email:\n- room 14 is closed\n- meet at 9:30\n- bring 3 keys",
        "Hello all, room 14 is closed, so we meet at 9:30. Please bring three keys.",
        "Hello all, room 14 is closed, so we meet elsewhere. Please bring three keys.",
    ),
]


@pytest.mark.parametrize(("request_text", "right", "wrong"), CASES)
def test_a_fault_of_chat_lowers_only_the_wrong_reply(
    request_text: str, right: str, wrong: str
) -> None:
    """Of two replies to a message only the one with the fault is lowered."""
    assert not is_against(found(request_text, right))
    assert is_against(found(request_text, wrong))


def test_a_repeated_reply_does_not_answer_the_next_message() -> None:
    """A reply that repeats most of an earlier one is no answer to another question."""
    earlier = (("How do I get to the island?", RIDE),)
    assert is_against(found("is there a place to eat on it", f"{RIDE} Have fun!", earlier))
    assert not is_against(found("is there a place to eat on it", "Yes, a café.", earlier))


def test_changed_names_speak_against_a_reply() -> None:
    """A name or month that differs from the user's speaks against a reply."""
    earlier = (("Hi, I'm Ottilie, my exam is in June", "Good luck, Ottilie!"),)
    ask = "how should i plan the weeks before it?"
    assert is_against(found(ask, "Your exam is in August, so start in July.", earlier))
    assert is_against(found(ask, "Start with the hardest topic, Gwendolyn.", earlier))
    assert not is_against(found(ask, "Your exam is in June: start now, Ottilie.", earlier))


def test_rudeness_by_wish_is_no_fault() -> None:
    """An insult that the user asked for does not speak against the reply."""
    assert not is_against(found("Roast me!", "You're so lazy that your alarm clock gave up."))


def test_a_short_text_to_edit_is_not_its_context() -> None:
    """A system message that orders to polish texts leaves no context."""
    rules = "You polish messages. Output only the new text."
    assert has_only_its_text(Conversation("gimme my money back", rules))
    assert not has_only_its_text(Conversation("gimme my money back", "You sell shoes."))


@pytest.mark.parametrize("piece", ["I'm Ann, ", "not ", "3 weeks ", "you are ", "\n", "| ", "May "])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """Very long text is judged in bounded time."""
    text = piece * (300_000 // len(piece))
    begin = time.process_time()
    found(f"Correct only the mistakes: {text}", text, ((text, text),))
    assert time.process_time() - begin < 4
