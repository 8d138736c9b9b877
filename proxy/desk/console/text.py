"""Makes foreign text safe to show: invisible characters are shown, and markup stays text.

Everything that a client or a model wrote is foreign: questions, replies, names of models and tools,
notes. None of it may become more than text here, whatever the page's Content-Security-Policy says.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import nh3
import orjson
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup, escape

from proxy.desk.decisions.unseen import visible

MOST_FORMATTED = 12_000
"""Characters of a text that are read as markdown; with more a reply could keep the server busy."""

PIECE = 10_000  # characters of a piece of plain text
MOST_JSON = 20_000  # characters of a call's arguments that are formatted

_LINKS = frozenset(("http", "https", "mailto"))
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+", re.IGNORECASE)
_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em"),
    *("strong", "s", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a", "img"),
}
_ATTRIBUTES = {"*": set[str](), "a": {"href"}, "img": {"src", "alt"}, "ol": {"start"}}


def is_picture(url: str) -> bool:
    """Return whether an image is in the page itself, in a format without scripts."""
    return _PICTURE.fullmatch(url) is not None


def render_markdown(text: str) -> Markup:
    """Convert markdown to HTML without scripts, styles, forms or anything that is fetched.

    Longer texts than `MOST_FORMATTED` become plain text with their lines.
    """
    markdown = visible(text)
    if len(markdown) > MOST_FORMATTED:
        return plain(text)
    html = _reader().render(markdown)
    safe = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_filter_attribute,
        url_schemes={*_LINKS, "data"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
    return Markup(safe)  # the sanitizer made it


def plain(text: str) -> Markup:
    """Return a text as HTML that shows it as it is, with its lines and invisible characters.

    A long one is split into pieces, of which a browser lays out only those in sight.
    """
    characters = visible(text)
    pieces = (characters[at : at + PIECE] for at in range(0, len(characters) or 1, PIECE))
    return Markup("").join(Markup('<div class="plain">{}</div>').format(one) for one in pieces)


def raw(text: str) -> Markup:
    """Escape a text for a form's field: every character as it is, except what no page can hold."""
    held = text.replace("\0", "\ufffd")  # as browsers parse it
    return escape(held.encode("utf-8", "replace").decode("utf-8"))


def indented_json(arguments: str) -> str:
    """Format JSON over several lines, and return other texts unchanged.

    So are JSON that is longer than `MOST_JSON` and JSON that is nested too deeply.
    """
    if len(arguments) > MOST_JSON:
        return arguments
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)[: MOST_JSON * 4]
    except (ValueError, RecursionError):
        return arguments


def as_json(value: Any) -> Markup:
    """Serialize a value for a `<script type="application/json">`, which no text in it can end."""
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)  # markup characters are escaped


def _filter_attribute(tag: str, attribute: str, value: str) -> str | None:
    """Return the attribute's value if it is safe, or None, which removes it.

    The source of an image has to be in the page itself, and a link needs a scheme of `_LINKS`.
    """
    if (tag, attribute) == ("img", "src"):
        return value if is_picture(value) else None
    if (tag, attribute) == ("a", "href"):
        return value if value.partition(":")[0].lower() in _LINKS else None
    return value


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    """Return the markdown parser: CommonMark without HTML, with tables and strikethrough."""
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    reader.add_render_rule("image", _image)
    return reader


def _image(renderer: RendererHTML, tokens: Any, index: int, options: Any, env: Any) -> str:
    """Return the HTML of an image that is in the page itself, or of a link to any other.

    Loading it would tell its owner that somebody reads.
    """
    token = tokens[index]
    url = str(token.attrs.get("src", ""))
    name = renderer.renderInlineAsText(token.children or [], options, env)
    if is_picture(url):
        return str(Markup('<img src="{}" alt="{}">').format(url, name))
    return str(Markup('<a href="{}">{}</a>').format(url, f"[image] {name or url}"))
