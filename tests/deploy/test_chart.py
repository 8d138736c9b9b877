"""The chart, rendered by Helm, fits the schemas of Kubernetes and agrees with the code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

import pinocchio
from proxy.config.setup import load_setup
from proxy.errors import StartupError
from proxy.startup.startup import check_exposure, check_setup
from tests.conftest import StartProxy
from tests.deploy import agreed
from tests.deploy.agreed import DEPLOY
from tests.running.live_proxy import ROOT, ProxyProcess, free_port, until

Json = dict[str, Any]
CHART = DEPLOY / "helm" / "pinocchio-proxy"
VALUES: Json = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
BUNDLED = ROOT / "tests" / "helm" / "node_modules" / "helm"
NEWEST, OLDEST = "1.37", "1.27"
ALL_ON: Json = {
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx", "tls": [{"hosts": ["llm.example.com"]}]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["a.example"]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "policyFiles": {"support.yaml": "version: 1\nname: support\ndefault: deliver\n"},
    "podAnnotations": {"example.com/team": "a"},
    "extraEnv": [{"name": "PINOCCHIO_LOG_LEVEL", "value": "warning"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "high",
}
ON_A_VOLUME: Json = {"persistence": {"enabled": True}, "replicaCount": 1}
PLAIN = "admin: false\ncalibrator: {checkpoint: 'fake:0.5'}\n"
SETTINGS: dict[str, Json] = {"as it is": {}, "all on": ALL_ON, "on a volume": ON_A_VOLUME}
OTHERS = {"HTTPRoute", "ServiceMonitor", "PrometheusRule"}  # kinds of other projects


@cache
def helm() -> str:
    program = shutil.which("helm") or str(BUNDLED)
    assert Path(program).is_file(), "scripts/setup_programs brings it"
    return program


def run_helm(folder: Path, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump({"existingSecret": "secrets"} | values))
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    command = [helm(), *arguments, str(CHART), "--values", str(file)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def rendered(folder: Path, **values: Any) -> list[Json]:
    """Return all manifests that the chart makes, including hooks."""
    done = run_helm(folder, "template", "gate", **values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(found: list[Json], kind: str) -> Json:
    [one] = [each for each in found if each["kind"] == kind]
    return one


def refusal(folder: Path, **values: Any) -> str:
    done = run_helm(folder, "template", "gate", **values)
    assert done.returncode != 0
    return done.stderr


def container(workload: Json) -> Json:
    [only] = workload["spec"]["template"]["spec"]["containers"]
    found: Json = only
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_what_it_makes_is_valid(tmp_path: Path, name: str) -> None:
    """The manifests are valid in the newest Kubernetes with a schema here, and in an old one."""
    found = rendered(tmp_path, **SETTINGS[name])
    assert run_helm(tmp_path, "lint", "--strict", **SETTINGS[name]).returncode == 0
    own = [each for each in found if each["kind"] not in OTHERS]
    for version in (NEWEST, OLDEST):
        for each in own:
            kubernetes_validate.validate(each, version, strict=True)
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found)
    kinds = {each["kind"] for each in found}
    assert {"Deployment", "Service", "ConfigMap", "Pod"} <= kinds
    assert (kinds >= OTHERS) == (name == "all on")


def test_it_is_of_this_version() -> None:
    """Chart, image and package have one version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {pinocchio.__version__}
    assert chart["kubeVersion"].startswith(f">={OLDEST}.")


def test_its_schema_knows_each_value_and_no_other(tmp_path: Path) -> None:
    """A misspelt name is refused, and the sections of the schema are those of values.yaml."""
    assert set(SCHEMA["properties"]) == {*VALUES, "global"}
    for name, section in SCHEMA["properties"].items():
        if section.get("additionalProperties") is False and "properties" in section:
            assert set(section["properties"]) == set(VALUES[name]), name
    assert "replicas" in refusal(tmp_path, replicas=3)
    assert "pullpolicy" in refusal(tmp_path, image={"pullpolicy": "Always"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"existingSecret": ""}, "existingSecret is needed"),
        ({"persistence": {"enabled": True}}, "set replicaCount to 1"),
        ({"config": {"store": "sqlite:///x.db"}}, "config.store has to be"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs names no gateway"),
    ],
)
def test_what_cannot_work_is_a_sentence(tmp_path: Path, values: Json, message: str) -> None:
    """Values that cannot work are refused with a message that says why."""
    assert message in refusal(tmp_path, **values)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_proxy_takes_its_configuration(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy accepts its configuration with the Secret's variables, beside the policy files."""
    for variable in agreed.known_variables():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PINOCCHIO_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("PINOCCHIO_STORE", f"sqlite:///{tmp_path}/held.db")
    maps = [each for each in rendered(tmp_path, **SETTINGS[name]) if each["kind"] == "ConfigMap"]
    [files] = [each["data"] for each in maps if "proxy.yaml" in each["data"]]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    setup = load_setup(tmp_path / "proxy.yaml")
    check_setup(setup, "0.0.0.0")
    assert setup.config.admin.port == agreed.DESK_PORT
    if name == "all on":
        assert load_setup(tmp_path / "proxy.yaml", str(tmp_path / "support.yaml")).policy.name
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-company")
    with pytest.raises(StartupError, match="keys: required"):
        check_exposure(load_setup(tmp_path / "proxy.yaml"), "0.0.0.0")


def test_the_pod_is_what_the_image_is_made_for(tmp_path: Path) -> None:
    """The pod's probes, ports, user, folders and variables are those of the code and Dockerfile."""
    found = rendered(tmp_path)
    deployment = of_kind(found, "Deployment")
    pod, proxy = deployment["spec"]["template"]["spec"], container(deployment)
    assert pod["securityContext"]["runAsUser"] == agreed.USER_ID
    assert proxy["securityContext"]["readOnlyRootFilesystem"] is True
    probes = [proxy[f"{each}Probe"]["httpGet"]["path"] for each in ("startup", "liveness")]
    assert probes == ["/livez", "/livez"]
    assert proxy["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {*probes, "/readyz"} <= set(agreed.PROBES)
    ports = {each["name"]: each["containerPort"] for each in proxy["ports"]}
    assert ports == {"http": agreed.DEFAULT_PORT, "desk": agreed.DESK_PORT}
    mounts = {each["mountPath"] for each in proxy["volumeMounts"]}
    assert mounts == {str(Path(agreed.CONFIG).parent), agreed.STORE_FOLDER, "/tmp"}
    assert {each["name"] for each in proxy["env"]} <= agreed.known_variables()
    assert proxy["args"][:3] == ["serve", "--config", agreed.CONFIG]
    assert proxy["image"].endswith(f":{pinocchio.__version__}")


@pytest.mark.parametrize("limits", [{}, {"drain_s": 20, "grace_s": 120}])
def test_a_pod_has_the_time_that_a_stop_takes(tmp_path: Path, limits: Json) -> None:
    """A pod may stop for longer than the configured limits and the desk's own time together."""
    found = of_kind(rendered(tmp_path, config={"limits": limits}), "Deployment")
    taken = sum((VALUES["config"]["limits"] | limits).values())
    desk_s = agreed.STOP_S - agreed.LIMITS.drain_s - agreed.LIMITS.grace_s
    assert found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > taken + desk_s


def test_helm_s_own_test_detects_a_proxy(tmp_path: Path, start_proxy: StartProxy) -> None:
    """The program of Helm's test pod succeeds with a proxy and fails without one."""
    pods = [each for each in rendered(tmp_path) if each["kind"] == "Pod"]
    [program] = pods[0]["spec"]["containers"][0]["args"]
    assert '"gate-pinocchio-proxy", 8000' in program
    for port, status in ((start_proxy().port, 0), (free_port(), 1)):
        code = program.replace('"gate-pinocchio-proxy", 8000', f'"127.0.0.1", {port}')
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
        assert done.returncode == status, done.stderr


def test_a_changed_config_map_reaches_a_running_proxy(tmp_path: Path) -> None:
    """After the kubelet swaps the link to the files, the proxy soon has a new generation."""

    def publish(name: str, text: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "proxy.yaml").write_text(text)
        link = tmp_path / "..new"
        link.symlink_to(name)
        link.rename(tmp_path / "..data")

    text = f"store: sqlite:///{tmp_path}/held.db\n" + PLAIN
    publish("..1", text)
    (tmp_path / "proxy.yaml").symlink_to("..data/proxy.yaml")
    with ProxyProcess(tmp_path, text) as proxy:
        ready = proxy.base_url.removesuffix("/v1") + "/readyz"
        assert httpx.get(ready).json()["generation"] == 1
        publish("..2", text + "policies: helpdesk\n")
        until(lambda: httpx.get(ready).json()["generation"] == 2, 20)


def test_the_job_migrates_the_store_of_the_proxies(tmp_path: Path) -> None:
    """Before each install and upgrade, a job migrates the store; for SQLite there is none.

    It has the image and the Secret of the proxies.
    """
    found = rendered(tmp_path)
    job = of_kind(found, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    migrate, proxy = container(job), container(of_kind(found, "Deployment"))
    assert migrate["args"] == ["migrate"]
    for name in ("image", "env", "envFrom", "securityContext"):
        assert migrate[name] == proxy[name]
    assert not any(each["kind"] == "Job" for each in rendered(tmp_path, **ON_A_VOLUME))


def test_services_and_routes_lead_to_the_pods(tmp_path: Path) -> None:
    """Selectors match the pods' labels, and each route leads to the service."""
    found = rendered(tmp_path, **ALL_ON)
    service = of_kind(found, "Service")
    labels = of_kind(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for each in (
        service["spec"]["selector"],
        of_kind(found, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert each.items() <= labels.items()
    job_labels = of_kind(found, "Job")["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= job_labels.items()
    [backend] = of_kind(found, "HTTPRoute")["spec"]["rules"][0]["backendRefs"]
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert backend == {"name": service["metadata"]["name"], "port": ports["http"]}
    path = of_kind(found, "Ingress")["spec"]["rules"][0]["http"]["paths"][0]
    assert path["backend"]["service"] == {
        "name": service["metadata"]["name"],
        "port": {"name": "http"},
    }
    target = of_kind(found, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"]
    assert target == of_kind(found, "Deployment")["metadata"]["name"]
    assert "replicas" not in of_kind(found, "Deployment")["spec"]


def test_prometheus_and_grafana_get_the_project_s_own_files(tmp_path: Path) -> None:
    """The alerts and the board are those of deploy/, and /metrics is scraped with the token."""
    found = rendered(tmp_path, **ALL_ON)
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    assert of_kind(found, "PrometheusRule")["spec"] == alerts
    [board] = [each["data"] for each in found if "pinocchio.json" in each.get("data", {})]
    assert json.loads(board["pinocchio.json"]) == json.loads(
        (DEPLOY / "grafana" / "pinocchio.json").read_text()
    )
    [endpoint] = of_kind(found, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("desk", "/metrics")
    wanted = {"name": "secrets", "key": "PINOCCHIO_ADMIN_TOKEN"}
    assert endpoint["authorization"]["credentials"] == wanted
