"""Replies that attack their readers: a real Chromium shows each, and none has an effect."""

from __future__ import annotations

import base64
import json
import time

import pytest

from tests.conftest import StartProxy
from tests.running.browser import Visit
from tests.running.desk_client import DESK, HOLD, decide, held_id
from tests.running.live_proxy import LiveProxy

RUN = "window.pwned=1;alert(1)"
FAR = "https://evil.example"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'><script>{RUN}</script></svg>"
SVG_URL = "data:image/svg+xml;base64," + base64.b64encode(SVG.encode()).decode()
HOSTILE = [
    f"<script>{RUN}</script>",
    f"</textarea></pre></script><script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"' onfocus='{RUN}' autofocus='",
    f"<svg onload={RUN}>",
    SVG,
    f"![x]({SVG_URL})",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"<iframe src={FAR}></iframe>",
    f"<img src={FAR}/a.png>",
    f"![tracked]({FAR}/b.png)",
    "![tracked](//evil.example/c.png)",
    f"[click](javascript:{RUN})",
    f"[click](JaVaScRiPt&colon;{RUN})",
    f"[click](\x01javascript:{RUN})",
    f"[click](data:text/html,<script>{RUN}</script>)",
    f"[click](vbscript:{RUN})",
    f"<a href='javascript:{RUN}' style='position:fixed;inset:0'>all of the page</a>",
    f"<base href={FAR}>",
    f"<meta http-equiv=refresh content='0;url={FAR}'>",
    f"<link rel=stylesheet href={FAR}/x.css>",
    "<style>*{display:none!important}</style>",
    f"<style>@import '{FAR}/x.css'; body{{background:url({FAR}/y)}}</style>",
    f"<form action={FAR} id=x><button form=x>Approve</button></form>",
    "<input name=csrf form=decide><button name=verdict value=approve autofocus>",
    f"<object data={FAR}></object><embed src={FAR}><video src={FAR} onerror='{RUN}' autoplay>",
    f"<details open ontoggle='{RUN}'><summary>x</summary></details>",
    f"<math><mtext></form><form><mglyph><style></math><img src=x onerror={RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"{{{{ ''.__class__.__mro__ }}}} {{% for x in y %}} ${{{RUN}}} <%= {RUN} %>",
    f"```html\n</code></pre><script>{RUN}</script>\n```",
    f"| a | b |\n|-|-|\n| <img src=x onerror={RUN}> | [x](javascript:{RUN}) |",
    "\u202egnp.exe\u202c \u2066\u2069 \u200b\ufeff \u0007\u001b[31m \U000e0041",
    "Z\u0351\u0343" + "\u0316\u0317\u0321\u0334\u0360" * 400,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 500,
    "a" * 30_000,
    "\n" * 20_000 + "the end",
    "> " * 3_000 + "deep",
    "[" * 15_000,
    "](" * 8_000,
    f"x]]><!--<script>{RUN}</script>-->",
    f"%3Cscript%3E{RUN}%3C/script%3E &lt;script&gt;{RUN}&lt;/script&gt; &#60;script&#62;",
]

SEEN = """
[window.pwned ?? null, window.violations,
 document.documentElement.scrollWidth - document.documentElement.clientWidth,
 document.querySelector(".side nav a").checkVisibility()]
"""


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


def looked_at(visit: Visit, path: str) -> None:
    """Open the page and check that it caused no dialog, request or error."""
    page = visit.page
    response = page.goto(path)
    assert response is not None
    assert response.status == 200, path
    pwned, violations, overflow, is_framed = page.evaluate(SEEN)
    assert (pwned, violations, overflow, is_framed) == (None, [], 0, True), path
    assert (visit.dialogs, visit.elsewhere, visit.errors) == ([], [], []), path


def called(name: str, arguments: str) -> dict[str, object]:
    """Return a reply that calls a tool with this name, as the upstream's answer."""
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "x", "object": "chat.completion", "model": name, "choices": [choice]}


@pytest.mark.parametrize(
    "texts", [HOSTILE[::5], pytest.param(HOSTILE, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_nothing_of_a_hostile_reply_happens(
    proxy: LiveProxy, visit: Visit, texts: list[str]
) -> None:
    """Hostile text in replies, questions, instructions, models' names
    and notes has no effect on any page that shows it: no dialog,
    request to another origin, violation, script's change or overflow.
    """
    assert len(HOSTILE) >= 30
    ids = []
    for text in texts:
        messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
        headers = {"x-faulty": "ok"}
        ids.append(held_id(proxy, model=text[:500], messages=messages, headers=headers))
    for id in ids:
        looked_at(visit, f"/console/reviews/{id}")
        visit.page.keyboard.press("e")
        assert visit.page.evaluate("window.pwned ?? null") is None
    for path in ("reviews", "traffic", "quality?days=1", "policies"):
        looked_at(visit, f"/console/{path}")
    for id, text in zip(ids, texts, strict=True):
        response = decide(proxy, id, verdict="reject", note=text[:2_000])
        assert response.status_code == 200
    for path in ("reviews?state=rejected", *(f"reviews/{id}" for id in ids[:12:2])):
        looked_at(visit, f"/console/{path}")


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({text[:300]: text[:3_000] for text in HOSTILE}),
        pytest.param(
            json.dumps({"html": HOSTILE, "n": {"</textarea>": HOSTILE[0]}}), marks=pytest.mark.slow
        ),
        "[" * 50_000,
        pytest.param('{"a":' * 20_000, marks=pytest.mark.slow),
        pytest.param('{"a": ' + "9" * 20_000 + "}", marks=pytest.mark.slow),
        pytest.param(json.dumps({str(n): n for n in range(20_000)}), marks=pytest.mark.slow),
        f"</pre><script>{RUN}</script>",
    ],
    ids=["names", "nested", "bomb", "deep", "number", "many", "markup"],
)
def test_nothing_of_a_hostile_call_happens(proxy: LiveProxy, visit: Visit, arguments: str) -> None:
    """Hostile text in names and arguments of tools has no effect, also in the form for edits."""
    body = called(HOSTILE[0] + HOSTILE[2], arguments)
    id = held_id(proxy, model="told", reply=body, tools=[{"function": {"name": HOSTILE[1]}}])
    looked_at(visit, f"/console/reviews/{id}")
    visit.page.keyboard.press("e")
    looked_at(visit, f"/console/reviews/{id}?all=1")


def test_a_megabyte_is_a_page_within_a_second(proxy: LiveProxy, visit: Visit) -> None:
    """A page with a megabyte is made in under a second, cut; a click shows all of it, unedited."""
    id = held_id(proxy, "many words and *marks* " * 45_000)
    path = f"/console/reviews/{id}"
    began = time.process_time()
    page = proxy.desk.get(path)
    assert time.process_time() - began < 1
    assert (page.status_code, len(page.content) < 300_000) == (200, True)
    looked_at(visit, path)
    link = visit.page.get_by_role("link", name="Show all").first
    looked_at(visit, str(link.get_attribute("href")))
    text = visit.page.locator(".reply").text_content() or ""
    assert text.count("marks") == 45_000
    assert visit.page.get_by_text("too long to be edited here").is_visible()
    assert visit.page.locator("[data-edit]").count() == 0
