"""The launches of all targets: the proxy in its variants, and its peers.

Each is one worker process (with its threads and children), quiet, and with keep-alive on both
sides. Settings of a peer that cost time and that a plain relay does not need are off.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench_install import install
from bench_process import free_port
from bench_servers import proxy_config
from bench_targets import Launch, Place

OBSERVE, ENFORCE, INFO = "ours", "ours-enforce", "ours-info"
BARE, EMBEDDED = "ours-bare", "ours-embedded"
DIRECT, NGINX, LITELLM = "direct", "nginx", "litellm"
PEERS: Final = (LITELLM, "portkey", "httpx", "sglang-router", NGINX)
FAKE: Final = "fake:0.73"
SCORED: Final = b"0.73"
SCRIPTS: Final = Path(__file__).parents[2]

QUIET: Final = """\
Quiet: PINOCCHIO_LOG_LEVEL=warning (but for ours-info), LITELLM_LOG=ERROR, nginx without access
log, sglang-router --log-level error, uvicorn of httpx without access log; Portkey logs nothing.
sglang-router: round robin, without retries, circuit breaker and health checks. litellm: no
database, no telemetry, local price list. One worker each."""


# --- the proxy -----------------------------------------------------------------------------------


def ours(name: str, place: Place) -> Launch:
    """Return the launch of `pinocchio serve` from the tree to measure, in one of the variants.

    Variants are `ours`, `ours-enforce`, `ours-info`, `ours-bare` and `ours-embedded`. A new folder
    in the scratch gets configuration and records.
    """
    folder = place.scratch / f"{name}-{time.monotonic_ns()}"
    folder.mkdir()
    checkpoint = {BARE: "none", EMBEDDED: "embedded"}.get(name, FAKE)
    calibrator: dict[str, object] = {"checkpoint": checkpoint, "device": "cpu"}
    if name == EMBEDDED:
        calibrator |= {"threads": 1, "max_queue": 64}
    config = proxy_config(f"{place.upstream_url}/v1", calibrator, folder / "bench.db")
    config["policies"] = "observe"
    if name == ENFORCE:
        config["policies"] = "enforce.yaml"
        (folder / "enforce.yaml").write_text(json.dumps(enforcing_policy()))
    path, port = folder / "proxy.yaml", free_port()
    path.write_text(json.dumps(config))  # JSON is YAML
    serve = ["-m", "pinocchio", "serve", "--config", str(path), "--port", str(port)]
    return Launch(
        port,
        [sys.executable, *serve],
        env={"PINOCCHIO_LOG_LEVEL": "info" if name == INFO else "warning"},
        cwd=place.root,  # python -m looks there first
        must_hold={BARE: b"no_calibrator", EMBEDDED: b'"pinocchio":'}.get(name, SCORED),
        must_hold_once_ready=b'"calibrator":' if name == EMBEDDED else None,
        records=folder / "bench.db",
    )


def enforcing_policy() -> dict[str, object]:
    """Return a policy of twenty rules of all kinds.

    Only the last matches a plain reply at 0.73.
    """
    verbs = ("delete", "send", "refund", "pay", "transfer", "deploy", "revoke", "publish")
    hold = {"hold": {"queue": "oncall", "reply": "error", "expires": "30m"}}
    rules: list[dict[str, object]] = [
        {
            "name": f"tools that {verb}",
            "when": {"tools": [f"{verb}*", f"*[._-]{verb}*"], "confidence": {"below": 0.95}},
            "then": hold,
        }
        for verb in verbs
    ]
    rules += [
        {"name": f"model {model}", "when": {"model": f"{model}*"}, "then": hold}
        for model in ("gpt-3", "claude-2", "gemini-1", "mistral")
    ]
    rules += [
        {"name": f"domain {domain}", "when": {"domain": domain}, "then": "block"}
        for domain in ("medicine", "law")
    ]
    rules += [
        {"name": "tagged", "when": {"tags": ["risky", "external"]}, "then": hold},
        {"name": "several choices", "when": {"n": {"at_least": 2}}, "then": hold},
        {"name": "cut off", "when": {"finish_reason": "length"}, "then": hold},
        {"name": "very unsure", "when": {"confidence": {"below": 0.2}}, "then": hold},
        {"name": "unclear", "when": {"confidence": {"between": [0.2, 0.35]}}, "then": "clarify"},
        {"name": "sure", "when": {"confidence": {"at_least": 0.7}}, "then": "deliver"},
    ]
    policy = {"version": 1, "name": "bench", "mode": "enforce", "on_score_error": "hold"}
    return {**policy, "rules": rules, "default": {"hold": {"queue": "review"}}}


# --- its peers -----------------------------------------------------------------------------------


def peer(name: str, place: Place) -> Launch:
    """Return the launch of a peer, which is installed where needed.

    Raises MissingPeerError where it cannot be.
    """
    return _PEERS[name](place)


def _litellm(place: Place) -> Launch:
    """Return the launch of LiteLLM's proxy, installed where needed.

    Its configuration is written to the scratch folder. Raises MissingPeerError.
    """
    home, port = install("litellm", place.peers), free_port()
    to_upstream = {"api_base": f"{place.upstream_url}/v1", "api_key": "bench"}
    route = {"model_name": "*", "litellm_params": {"model": "openai/*", **to_upstream}}
    path = place.scratch / "litellm.yaml"
    path.write_text(json.dumps({"model_list": [route], "litellm_settings": {"telemetry": False}}))
    options = {"config": path, "host": "127.0.0.1", "port": port, "num_workers": 1}
    return Launch(
        port,
        [str(home / "bin/litellm"), *_flags(options), "--telemetry", "False"],
        env={
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MODE": "PRODUCTION",
            # Ours checks no key here either; it listens on loopback, for minutes.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        },
        cwd=place.scratch,
    )


def _portkey(place: Place) -> Launch:
    """Return the launch of Portkey's gateway, installed where needed.

    Headers of the requests name the upstream. Raises MissingPeerError.
    """
    home, port = install("portkey", place.peers), free_port()
    server = home / "node_modules/@portkey-ai/gateway/build/start-server.js"
    loopback = ["--require", str(home / "loopback.cjs")]
    return Launch(
        port,
        ["node", *loopback, str(server), f"--port={port}", "--headless"],
        env={"NODE_ENV": "production"},
        headers=(
            ("x-portkey-provider", "openai"),
            ("x-portkey-custom-host", f"{place.upstream_url}/v1"),
        ),
    )


def _httpx(place: Place) -> Launch:
    """Return the launch of the minimal pass-through of Starlette and httpx."""
    port = free_port()
    server = [str(SCRIPTS / "benches/bench_servers.py"), "pass-through"]
    return Launch(port, [sys.executable, *server, f"{place.upstream_url}/v1", str(port)])


def _sglang_router(place: Place) -> Launch:
    """Return the launch of sglang-router, installed where needed. Raises MissingPeerError."""
    home, port = install("sglang-router", place.peers), free_port()
    options = {
        "host": "127.0.0.1",
        "port": port,
        "prometheus-port": free_port(),
        "worker-urls": place.upstream_url,
        "policy": "round_robin",
        "log-level": "error",
    }
    switches = ["--disable-retries", "--disable-circuit-breaker", "--disable-health-check"]
    command = [str(home / "bin/python"), "-m", "sglang_router.launch_router"]
    return Launch(port, [*command, *_flags(options), *switches], cwd=place.scratch)


NGINX_CONF: Final = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream bench {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048; keepalive_requests 100000000;
    client_max_body_size 64m; client_body_buffer_size 1m;
    location / {{
      proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def _nginx(place: Place) -> Launch:
    """Return the launch of nginx, installed where needed, with a configuration in the scratch.

    Raises MissingPeerError.
    """
    program, port = install(NGINX, place.peers), free_port()
    folder = place.scratch / "nginx"
    folder.mkdir(exist_ok=True)
    user = "user root;" if os.geteuid() == 0 else ""
    conf = NGINX_CONF.format(folder=folder, user=user, upstream=place.upstream, port=port)
    (folder / "nginx.conf").write_text(conf)
    command = [str(program), "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    return Launch(port, [*command, "-e", "stderr"])


def _flags(options: Mapping[str, object]) -> list[str]:
    """Return the options as arguments, such as `["--port", "80"]` for `{"port": 80}`."""
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


_PEERS: Final[Mapping[str, Callable[[Place], Launch]]] = {
    "litellm": _litellm,
    "portkey": _portkey,
    "httpx": _httpx,
    "sglang-router": _sglang_router,
    NGINX: _nginx,
}
