"""Cases of the lines in examples/clients/README.md, run exactly as they are printed there."""

from __future__ import annotations

import importlib
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.clients.proxied import CONFIDENCE, KEY, MESSAGES, PROXY, QUESTION, named

FOLDER = Path(__file__).parents[2] / "examples" / "clients"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## (.*?)\n\n```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
IMPORTED = {
    "openai": "OpenAI AsyncOpenAI DefaultHttpxClient DefaultAsyncHttpxClient",
    "langchain_openai": "ChatOpenAI",
    "agents": "Agent Runner set_default_openai_client set_tracing_disabled",
    "anthropic": "Anthropic",
}
HAS_LITELLM = find_spec("litellm") is not None
LIBRARIES = {  # here, since some take many seconds
    name: importlib.import_module(name) for name in (["litellm"] if HAS_LITELLM else IMPORTED)
}
HERE = [title for title in BLOCKS if title.startswith("LiteLLM") == HAS_LITELLM]


def names() -> dict[str, Any]:
    """Return the names that the page's lines assume to be defined."""
    sys.path.insert(0, str(FOLDER))
    found: dict[str, Any] = {"url": PROXY, "messages": MESSAGES, "question": QUESTION}
    found["Confidences"] = importlib.import_module("confidences").Confidences
    if HAS_LITELLM:
        return found | LIBRARIES
    for module, its_names in IMPORTED.items():
        library = LIBRARIES[module]
        found |= {name: getattr(library, name) for name in its_names.split()}
    found["set_tracing_disabled"](True)  # traces would be sent to OpenAI
    return found


@pytest.mark.parametrize("title", HERE)
def test_the_lines_show_the_confidence(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value that the lines call `confidence` is the proxy's."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    found = names() | {"model": named("text")}
    exec(compile(BLOCKS[title], title, "exec"), found)
    assert found["confidence"] == CONFIDENCE
    if "seen" in found:
        fields = found["seen"].last
        assert fields["action"] == "deliver"
        assert "confidence-reason" not in fields, "there is a number"


def test_every_client_of_the_table_has_its_lines() -> None:
    """Each Python line of the table has its own part of the page below."""
    clients = [line.split(" | ")[0].strip("| ") for line in TEXT.splitlines() if line[:2] == "| "][
        1:
    ]
    plain = {each.replace("`", "") for each in clients if not each.startswith("Vercel")}
    assert plain == set(BLOCKS)


def test_what_the_table_calls_hidden_is_hidden() -> None:
    """Where the table says that nothing shows the confidence, that is still true."""
    if HAS_LITELLM:
        return
    found = names()
    model = {"model": named("text"), "api_key": KEY}
    chunks = list(found["ChatOpenAI"](base_url=PROXY, **model).stream(QUESTION))
    assert "pinocchio" not in repr(chunks)
    client = found["OpenAI"](base_url=PROXY, api_key=KEY)
    with client.chat.completions.stream(model=model["model"], messages=MESSAGES) as events:
        assert "pinocchio" not in repr(events.get_final_completion())
