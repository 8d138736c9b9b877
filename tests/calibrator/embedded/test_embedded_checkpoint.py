"""The shipped checkpoint: size, provenance, accuracy on the demo, caution about unknown texts."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import cache

import pytest

from calibrator import Item, load_scorer, message_text, read_question
from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED, read_config
from calibrator.metrics.metrics import auroc
from calibrator.scorer import Scorer
from proxy.upstreams.demo.demo import EMBEDDED_AUROC, rows

FOLDER = CHECKPOINTS / EMBEDDED
MAX_BYTES = 80_000_000

# Kinds of text that neither benchmarks nor training's outliers have
TRIVIAL = [("What is 2 + 2?", "2 + 2 = 5.", "2 + 2 = 4."), ("2+2=?", "5", "4")]
UNSEEN = [
    ("Write four lines about the sea in winter.", "Grey the water, grey the sky,\nsnow on every wave goes by,\nropes are stiff and gulls are few,\nsalt is all the old pier knew."),
    ("good morning :)", "Good morning! What can I do for you today?"),
    ("Make this sound nicer: send me the report now", "Could you send me the report when you have a moment? Thank you!"),
    ("Wie war dein Tag?", "Danke der Nachfrage! Ich bin bereit, dir zu helfen. Wie war deiner?"),
    ("Suggest a name for my grey kitten.", "Ash, Pebble or Misty would all suit a grey kitten."),
    ("I had a fight with my sister and feel awful.", "I am sorry to hear that. Would it help to tell her what you just told me?"),
    ("asdkj qwpeoi zmxn", "I did not quite catch that. Could you say it in other words?"),
    ("Review this function: def f(x): return x", "It works, but the name says nothing. A type hint and a docstring would help the reader."),
    ("What do you think of modern art?", "People disagree about it, and that is part of its charm."),
    ("Traduce: the cat sleeps on the sofa", "El gato duerme en el sofá."),
    ("Draft an invitation to our summer party.", "Dear neighbours, you are warmly invited to our garden on the last Saturday of July. Bring a salad and a song!"),
    ("What should I wear to an interview at a bakery?", "Neat, comfortable clothes: dark trousers, a plain shirt and closed shoes."),
    ("Continue: The door creaked, and", "the smell of old paper rolled out like fog. Mira lifted her lamp."),
    ("ERROR worker 3 exited with code 137, what now?", "137 usually means that the process was killed for using too much memory."),
    ("🙂🙃🙂", "🙂"),
    ("List three chores for a child.", "- set the table\n- water the plants\n- match the socks"),
    ("Write a slogan for a bicycle shop.", "Two wheels, no worries."),
    ("お元気ですか？", "はい、元気です。今日は何をお手伝いしましょうか？"),
    ("Tell me a joke.", "Why did the scarecrow get a medal? He was outstanding in his field."),
    ("Please summarise our meeting notes: Anna orders chairs, Bo calls the printer.", "Anna will order chairs; Bo will call the printer."),
]  # fmt: skip


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return _embedded()


@cache
def _embedded() -> Scorer:
    return load_scorer(EMBEDDED)


def _demo_items() -> list[Item]:
    """Return the demo's answers as the items that the proxy would score."""
    found = []
    for row in rows():
        messages, message = row.messages(), row.message()
        question = read_question(messages, list(row.tools))
        use, answer = question.tool_use(message), message_text(message)
        found.append(Item(question.text, answer, "demo", tool_use=use, messages=messages))
    return found


def test_the_checkpoint_is_small_and_says_what_made_it() -> None:
    """The checkpoint has at most 80 MB and names its training data, without __nc files."""
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    config = read_config(FOLDER)
    assert size <= MAX_BYTES
    assert config.source_models
    assert len(config.benchmarks) > 25
    assert "GHOSTS" not in config.benchmarks  # not for commercial use


def test_the_demo_figure_that_the_greeting_states_is_the_measured_one(scorer: Scorer) -> None:
    """The greeting states the AUROC of the shipped checkpoint on the demo."""
    scores = scorer.score_batch(_demo_items())
    measured = auroc([row.correct for row in rows()], [score.confidence for score in scores])
    print(f"demo set: {len(scores)} answers, AUROC {measured:.3f} ({scorer.name})")
    assert measured == pytest.approx(EMBEDDED_AUROC, abs=0.01)


def test_the_demos_answers_are_judged_by_the_rules_that_they_get(scorer: Scorer) -> None:
    """A demo answer that its rules contradict is doubted with a reason, also with other rules."""
    for years, sound in (("10 years", True), ("25 years", False)):
        for row in (row for row in rows() if row.question_id == "frame-guarantee"):
            rules, question = row.messages()
            changed = {**rules, "content": rules["content"].replace("10 years", years)}
            answer = row.content or ""
            [found] = scorer.score_batch([Item(row.question, answer, messages=[changed, question])])
            assert found.basis == ("context",)
            if row.correct is sound:
                assert found.confidence > 0.5
            else:
                assert found.confidence < 0.4
                assert "the context says otherwise" in found.because[0]


def test_text_of_unseen_kinds_gets_no_bold_confidence(scorer: Scorer) -> None:
    """Poems, small talk and gibberish stay near the base rate.

    Two of the twenty replies evade the question, which training labels as incorrect (D03), and a
    few do not look like answers to the inspector; they may be lower than the others, none is bold.
    """
    base_rate = read_config(FOLDER).base_rate
    scores = scorer.score_batch([Item(question, answer) for question, answer in UNSEEN])
    distances = sorted(abs(score.confidence - base_rate) for score in scores)
    for (question, _), score in zip(UNSEEN, scores, strict=True):
        print(f"{score.confidence:.3f}  {question}")
    assert statistics.mean(distances) < 0.14
    assert distances[-3] < 0.3
    # A greeting with a greeting as its answer is the surest.
    assert max(score.confidence for score in scores) < base_rate + 0.3


def test_it_looks_at_the_answer(scorer: Scorer) -> None:
    """An answer that is off topic or disagrees with its working has less confidence."""
    question = "A box holds 12 eggs. How many eggs are in 7 boxes?"
    working = "Each box holds 12 eggs, and there are 7 boxes, so 12 * 7 = 84. The answer is {}."
    options = (
        "Which gas do plants take up for photosynthesis?\nA. nitrogen\nB. helium\nC. carbon dioxide\n"
        "D. argon"
    )
    reason = (
        "For photosynthesis plants take up carbon dioxide from the air through their leaves, and "
        "give off oxygen. So it is carbon dioxide. The answer is ({})."
    )
    right, number, off, option, other = scorer.score_batch(
        [
            Item(question, working.format(84)),
            Item(question, working.format(91)),
            Item(question, "The committee meets on Thursdays; bring your own sandwiches."),
            Item(options, reason.format("C")),
            Item(options, reason.format("B")),
        ]
    )
    print([round(each.confidence, 3) for each in (right, number, off, option, other)])
    assert number.confidence < right.confidence - 0.03
    assert off.confidence < 0.3
    assert off.because == ("it does not answer the question",)
    assert other.confidence < 0.9 * option.confidence


@pytest.mark.parametrize(("question", "wrong", "right"), TRIVIAL)
def test_a_wrong_sum_is_not_surer_than_a_right_one(
    scorer: Scorer, question: str, wrong: str, right: str
) -> None:
    """A wrong sum has a lower score than the right one, unlike with the released weights (W09)."""
    scores = scorer.score_batch([Item(question, wrong), Item(question, right)])
    assert scores[0].score < scores[1].score


def test_it_scores_where_there_is_no_torch() -> None:
    """Loading and scoring work without torch and transformers."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from calibrator import Item, load_scorer\n"
        "print(load_scorer('embedded').score_batch([Item('2 + 2?', '4')])[0].confidence)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert 0 < float(done.stdout) < 1


def test_a_score_does_not_depend_on_its_batch(scorer: Scorer) -> None:
    """A score differs by at most 1e-5 alone and in a batch."""
    items = _demo_items()[:24]
    together = scorer.score_batch(items)
    alone = [scorer.score_batch([item])[0] for item in items]
    for one, other in zip(together, alone, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)


def test_only_what_was_not_read_whole_is_called_truncated(scorer: Scorer) -> None:
    """Only a text that is not read whole is marked as truncated."""
    short, long = "one two three " * 120, "one two three " * 400
    items = [Item("Count.", short), Item("Count.", long), Item(long, "3"), Item("?", "x" * 10_000)]
    assert [score.is_truncated for score in scorer.score_batch(items)] == [False, True, True, True]
