"""Foreign text on the console's pages: visible, cut, and always plain text."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest

from proxy.desk.console import text
from proxy.desk.console.display import MOST_SHOWN, fields_of, show_turns
from proxy.desk.decisions.times import format_time_left
from proxy.desk.decisions.unseen import visible
from proxy.formats.conversation import Part, Turn


def test_invisible_characters_become_code_points() -> None:
    """Control and direction characters, and half a surrogate pair, are shown as code points."""
    hidden = "pay\u202e\u2066 \x00\x1b[31m\u200b\ufeff\ud800\U000e0041!"
    text_shown = visible(hidden)
    assert (
        text_shown == "pay⸨U+202E⸩⸨U+2066⸩ ⸨U+0000⸩⸨U+001B⸩[31m⸨U+200B⸩⸨U+FEFF⸩⸨U+D800⸩⸨U+E0041⸩!"
    )
    text_shown.encode()


def test_every_hidden_character_is_found() -> None:
    """Every character of a hidden category is made visible, except for line ends and tabs."""
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    passing = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.category(character) in hidden and visible(character) == character
    ]
    assert passing == ["\t", "\n"]


UNSEEN = (
    "\u2065\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100"
    "\u1680\u2000\u2003\u200a\u205f\ufffc\uffff\U00016fe4\U0001d159"
)


@pytest.mark.parametrize("sign", UNSEEN)
@pytest.mark.parametrize("before", ["", "a", "pay 5", "\u00e9", "\u2665\ufe0f"])
def test_no_sign_that_nobody_sees_carries_words(sign: str, before: str) -> None:
    """Letters, marks and symbols without a shape are shown as code points."""
    assert visible(before + sign * 2).endswith(f"⸨U+{ord(sign):04X}⸩" * 2)


@pytest.mark.parametrize("signs", ["\u200d\u200c" * 20, "\ufe0e\ufe0f" * 20])
def test_joiners_are_kept_only_once(signs: str) -> None:
    """A joiner after a letter of its script, or a presentation after an emoji, is kept once."""
    assert len(visible(f"\u2665{signs}")) > 40 * 6
    assert visible(f"a{signs}").count("⸨") == 40


def test_emoji_are_unchanged() -> None:
    ordinary = "\u2665\ufe0f 1\ufe0f\u20e3 \u2764\ufe0e \U0001f469\u200d\U0001f469"
    assert visible(ordinary) == ordinary


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    """Accents, right-to-left letters and joined emoji are unchanged."""
    ordinary = "Ωραία, naïve café — שלום, مرحبا, नमस्ते, 👩\u200d👩\u200d👧 ♥\ufe0f"
    assert visible(ordinary) == ordinary


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    "![a](https://evil.example/pixel.png)",
    "![a](//evil.example/pixel.png)",
    "<style>body{display:none}</style>",
    "<a href='/pinocchio/logout'>x</a>",
    "[a](/pinocchio/logout)",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "[a](https://e.example 'x\" onmouseover=alert(1) \"')",
    "`<b onclick=alert(1)>`",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "<form action=https://evil.example><input name=csrf></form>",
    "<!-- --!> <script>alert(1)</script>",
    "[x]: javascript:alert(1)\n\n[x]",
    "<svg/onload=alert(1)>",
    '<https://e.example/" onclick="alert(1)>',
]
FORMATTING = "p br hr h1 h2 h3 h4 h5 h6 blockquote pre code em strong s ul ol li table thead tbody"
ALLOWED = re.compile(
    rf"</?(?:{'|'.join(FORMATTING.split())}|tr|th|td|a)>"
    r'|<div class="plain">|</div>|<ol start="\d+">'
    r'|<img src="data:image/(?:png|jpeg|gif|webp);[^"]*" alt="[^"]*">'
    r'|<a(?: href="(?:https?|mailto):[^"]*")? target="_blank" rel="noopener noreferrer nofollow">'
    r'|<a rel="noopener noreferrer nofollow" target="_blank">'
)


@pytest.mark.parametrize("source", HOSTILE)
def test_markdown_becomes_nothing_but_text_and_links(source: str) -> None:
    """The HTML made of Markdown has only tags that format text, without other attributes."""
    html = str(text.render_markdown(source))
    rest = ALLOWED.sub("", html)
    assert "<" not in rest, html


def test_an_image_from_elsewhere_is_a_link() -> None:
    """An image from elsewhere becomes a link, as loading it would tell its owner of the reader."""
    html = str(text.render_markdown("![a chart](https://e.example/x.png)"))
    assert '<a href="https://e.example/x.png"' in html
    assert "[image] a chart" in html
    assert "<img" not in html


def test_an_image_in_the_text_is_shown() -> None:
    """An image in the reply itself is shown, since its bytes are in the page already."""
    html = str(text.render_markdown("![dot](data:image/png;base64,iVBORw0KGgo=)"))
    assert '<img src="data:image/png;base64,iVBORw0KGgo=" alt="dot">' in html


@pytest.mark.parametrize("piece", ["[", "*a **a ", "`", "![", "~~a", "> ", "|a", "<", "\u202e"])
def test_a_megabyte_is_no_work(piece: str) -> None:
    """A text that a model repeats without end takes well under a second, and is cut."""
    endless = piece * (1_000_000 // len(piece))
    began = time.process_time()
    [turn] = show_turns([Turn("assistant", (Part("text", endless),))])
    assert time.process_time() - began < 1
    assert turn.parts[0].cut == len(endless)
    assert len(turn.parts[0].html) < 20 * MOST_SHOWN


@pytest.mark.parametrize("more", [0, 1])
def test_only_what_is_longer_is_cut(more: int) -> None:
    """A text of the maximum length is whole; a longer one is cut, and its length is shown."""
    long = "x" * (MOST_SHOWN + more)
    [turn] = show_turns([Turn("assistant", (Part("text", long),))])
    assert turn.parts[0].cut == (len(long) if more else None)


def test_the_full_text_is_uncut() -> None:
    """With everything requested, nothing is cut."""
    long = "all of it " * 10_000
    [turn] = show_turns([Turn("assistant", (Part("text", long),))], is_all=True)
    assert turn.parts[0].cut is None
    text_shown = turn.parts[0].html.striptags().replace(" ", "")
    assert text_shown == long.replace(" ", "")


def test_data_for_a_script_cannot_end_it() -> None:
    """JSON for a script has no `<`, `>` or `&`, whatever the value holds."""
    encoded = text.as_json({"name": "</script><script>alert(1)</script>&<!--"})
    assert not re.search("[<>&]", encoded)
    assert "\\u003c/script" in encoded


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"a":' * 5_000, "no json", "[1]", "{}", '"x"']
)
def test_arguments_without_fields_are_shown_as_text(arguments: str) -> None:
    """Arguments that nest without end, or that are no object, are shown as text."""
    assert fields_of(arguments) == ()
    [turn] = show_turns([Turn("assistant", (Part("call", arguments, "tool"),))])
    assert turn.parts[0].text[0] == arguments[0]


def test_arguments_are_fields() -> None:
    """Text arguments are shown unchanged, others as JSON."""
    found = fields_of('{"to": "a@b.c", "amount": 12.50, "rows": [1, 2]}')
    assert [(each.name, each.kind, each.value) for each in found] == [
        ("to", "text", "a@b.c"),
        ("amount", "json", "12.5"),
        ("rows", "json", "[\n  1,\n  2\n]"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (7 * 86_400, "7 d"),
        (36 * 3_600, "36 h"),
        (86_400, "1 d"),
        (90 * 60, "90 min"),
        (3_600, "1 h"),
        (7_200, "2 h"),
        (90, "1 min"),
        (45, "44 s"),
    ],
)
def test_no_half_of_the_time_that_is_left_is_lost(seconds: float, text: str) -> None:
    """The remaining time keeps its smaller unit up to two of the larger one, as in `36 h`."""
    assert format_time_left(seconds - 0.1) == text
