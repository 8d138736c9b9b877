"""With the lines for nginx in docs/deploy.md, nginx does not hold back a stream."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.running.live_proxy import ROOT, LiveProxy
from tests.running.nginx import Nginx
from tests.servers.faulty_upstream import FaultyUpstream

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


def test_a_stream_passes_nginx_while_it_grows(tmp_path: Path) -> None:
    """The first part arrives before upstream has sent the rest."""
    block = PAGE.split("```nginx\n")[1].split("```")[0]
    lines = [re.sub(r"#.*", "", line).strip() for line in block.splitlines()[2:-1]]
    with FaultyUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, tmp_path)
        try:
            with Nginx(proxy.port, " ".join(lines)) as nginx:
                url = f"http://127.0.0.1:{nginx.port}/v1/chat/completions"
                messages = [{"role": "user", "content": "The first part and the second"}]
                body = {"model": "gated", "stream": True, "messages": messages}
                with httpx.stream("POST", url, json=body, timeout=20, trust_env=False) as reply:
                    parts = reply.iter_bytes()
                    assert b"data: " in next(parts)
                    upstream.last.proceed()
                    assert b"[DONE]" in b"".join(parts)
        finally:
            proxy.stop()
