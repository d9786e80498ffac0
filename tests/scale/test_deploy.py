"""What deploy/ holds, read by helm, Prometheus, linters, and schemas of Kubernetes and Compose."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from support.scale.pair import HAPROXY, program
from support.serving import run_command

from rejoinder.agent.config import unknown_variables
from rejoinder.agent.metrics.catalogue import metrics_table

pytestmark = pytest.mark.scale

DEPLOY = ROOT / "deploy"
CHART, COMPOSE = DEPLOY / "chart", DEPLOY / "compose.yaml"
TOOLS = Path(sys.prefix) / "ship"
KUBERNETES = ("1.27.0", "1.37.0")
"""The oldest version that the chart allows, and the newest that kubernetes-validate knows."""
LAST_WORDS_S = 20
"""After drain_s, for last words, for the store of conversations and for the process to end."""
EVERYTHING = {
    "autoscaling.kind": "hpa",
    "image.pullSecrets[0].name": "registry",
    "ingress.enabled": "true",
    "ingress.className": "haproxy",
    "ingress.host": "voice.example.com",
    "ingress.tlsSecret": "voice-tls",
    "models.claim": "weights",
    "models.profile": "gpu",
    "networkPolicy.from[0].namespaceSelector.matchLabels.name": "edge",
    "nodeSelector.gpu": "h100",
    "resources.limits.nvidia\\.com/gpu": "1",
    "secrets.environment": "voice-environment",
    "service.annotations.note": "ours",
    "tolerations[0].operator": "Exists",
    "trustedProxies": "10.42.0.0/16",
}
"""Values that turn on each part of the chart which the defaults leave out."""


def tool(name: str, *arguments: object) -> str:
    """Return what a tool prints; it has to accept its input."""
    command = [str(TOOLS / "bin" / name), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def rendered(**values: str) -> str:
    chosen = [f"--set={name}={value}" for name, value in values.items()]
    return tool("helm", "template", "rejoinder", CHART, "--namespace=calls", *chosen)


def objects(text: str) -> dict[str, Any]:
    """Return the objects of a rendered chart, by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


def test_helm_accepts_the_chart() -> None:
    tool("helm", "lint", "--strict", CHART)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_kubernetes_accepts_what_the_chart_renders(
    values: dict[str, str], version: str, tmp_path: Path
) -> None:
    text = rendered(**values)
    (tmp_path / "rendered.yaml").write_text(text)
    said = tool("kubernetes-validate", "--strict", "-k", version, tmp_path / "rendered.yaml")
    assert said.count(" passed ") == text.count("\nkind:") and "WARN" not in said
    kinds = {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"}
    assert objects(text).keys() == kinds | ({"HorizontalPodAutoscaler", "Ingress"} if values else set())


def test_kubernetes_refuses_what_is_no_field(tmp_path: Path) -> None:
    """The schemas are strict, or the test above would say nothing."""
    (tmp_path / "rendered.yaml").write_text(rendered().replace("readOnlyRootFilesystem", "readOnlyRoot"))
    command = [TOOLS / "bin" / "kubernetes-validate", "--strict", "-k", KUBERNETES[-1]]
    ran = subprocess.run(
        [*command, tmp_path / "rendered.yaml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode != 0 and "readOnlyRoot" in ran.stdout + ran.stderr


def test_pods_get_the_time_to_drain() -> None:
    pod = objects(rendered(drainSeconds="40", preStopSeconds="7"))["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = {one["name"]: one.get("value", "") for one in container["env"]}
    assert environment["REJOINDER_DRAIN_S"] == "40"
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert pod["terminationGracePeriodSeconds"] >= 7 + 40 + LAST_WORDS_S
    assert unknown_variables(environment) == ""
    assert pod["enableServiceLinks"] is False


def test_pods_believe_the_proxies_that_are_named() -> None:
    pods = [
        objects(rendered(**values))["Deployment"]["spec"]["template"]["spec"] for values in ({}, EVERYTHING)
    ]
    [plain, everything] = [
        {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]} for pod in pods
    ]
    assert "REJOINDER_TRUSTED_PROXIES" not in plain
    assert everything["REJOINDER_TRUSTED_PROXIES"] == EVERYTHING["trustedProxies"]
    assert everything["REJOINDER_PROFILE"] == EVERYTHING["models.profile"], (
        "the one whose weights are fetched"
    )
    assert unknown_variables(everything) == ""


def test_all_containers_of_a_pod_have_the_environment() -> None:
    pod = objects(rendered(**EVERYTHING))["Deployment"]["spec"]["template"]["spec"]
    for container in pod["initContainers"] + pod["containers"]:
        assert container["envFrom"] == [{"secretRef": {"name": "voice-environment"}}]


def test_no_container_of_a_pod_has_more_rights_than_it_needs() -> None:
    pod = objects(rendered(**EVERYTHING))["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert [one["name"] for one in pod["initContainers"] + pod["containers"]] == ["models", "rejoinder"]
    for container in pod["initContainers"] + pod["containers"]:
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["allowPrivilegeEscalation"] is False


def test_pods_are_found_by_all_that_selects_them() -> None:
    chart = objects(rendered(**EVERYTHING))
    pod = chart["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    selectors = [
        chart["Deployment"]["spec"]["selector"]["matchLabels"],
        chart["Service"]["spec"]["selector"],
        chart["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        chart["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in pod["spec"]["topologySpreadConstraints"]),
    ]
    assert selectors == [labels] * 6
    assert chart["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "rejoinder"
    assert "replicas" not in chart["Deployment"]["spec"], "the autoscaler's number would be overwritten"


def test_pods_scale_with_calls_and_with_waiting_jobs() -> None:
    known = {line.split("`")[1] for line in metrics_table() if line.startswith("| `")}
    wanted = {"rejoinder_sessions", "rejoinder_engine_queue_age_seconds"}
    assert wanted <= known
    hpa = objects(rendered(**{"autoscaling.kind": "hpa"}))["HorizontalPodAutoscaler"]["spec"]
    assert {one["pods"]["metric"]["name"] for one in hpa["metrics"]} == wanted
    keda = objects(rendered(**{"autoscaling.kind": "keda"}))["ScaledObject"]["spec"]
    queries = [trigger["metadata"]["query"] for trigger in keda["triggers"]]
    assert [name in query for name, query in zip(sorted(wanted, reverse=True), queries, strict=True)] == [
        True
    ] * 2
    assert all('namespace="calls"' in query for query in queries)
    assert queries[0].endswith(") + 4"), "calls that begin while another pod starts"
    for query in queries:
        [names] = re.findall(r'pod=~"([^"]+)"', query)
        assert re.fullmatch(names, "rejoinder-7d9c5b8f4d-x2k8q")
        assert not re.fullmatch(names, "rejoinder-eu-7d9c5b8f4d-x2k8q"), "another release"


def test_the_chart_refuses_an_autoscaler_that_it_does_not_know() -> None:
    with pytest.raises(AssertionError, match=r"autoscaling.kind: keda, hpa or none"):
        rendered(**{"autoscaling.kind": "cron"})


def test_the_settings_of_the_chart_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(objects(rendered())["ConfigMap"]["data"]["rejoinder.toml"])
    shown = run_command("serve", "--config", "rejoinder.toml", "--print-config", folder=tmp_path)
    assert shown.returncode == 0 and "max_sessions" in shown.stdout, shown.stderr


def test_compose_accepts_its_file() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_compose_mounts_files_that_exist() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    volumes = [each for service in services.values() for each in service.get("volumes", [])]
    sources = [each.split(":")[0] for each in volumes if isinstance(each, str)]
    files = [DEPLOY / source for source in sources if source.startswith(".")]
    assert len(files) == 6, "HAProxy's, Prometheus', its rules, Grafana's two and its dashboard"
    assert [file for file in files if not file.resolve().is_file()] == []


def test_redis_of_compose_writes_nothing_to_the_disk() -> None:
    redis = yaml.safe_load(COMPOSE.read_text())["services"]["redis"]
    command = redis["command"]
    assert [command[command.index(option) + 1] for option in ("--save", "--appendonly")] == ["", "no"]
    assert "volumes" not in redis


def test_haproxy_knows_the_servers_of_compose() -> None:
    """HAProxy accepts its configuration with the addresses from Compose, which are those of the servers."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    environment = services["haproxy"]["environment"]
    text = HAPROXY.read_text()
    assert [name for name in environment if f"${{{name}-" not in text] == []
    command = [program("haproxy"), "-c", "-f", str(HAPROXY)]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("a", "b"):
        address = services[name]["networks"]["default"]["ipv4_address"]
        assert environment[f"BALANCER_{name.upper()}"] == f"{address}:8080"
    assert services["b"] | {"networks": ""} == services["a"] | {"networks": ""}


def test_servers_of_compose_believe_the_balancer_and_a_proxy_in_front_of_it() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    [network] = compose["networks"]["default"]["ipam"]["config"]
    balancer = compose["services"]["haproxy"]["networks"]["default"]["ipv4_address"]
    trusted = compose["services"]["a"]["environment"]["REJOINDER_TRUSTED_PROXIES"]
    assert trusted.split() == [balancer, network["gateway"]]


def test_compose_gives_servers_the_time_to_drain() -> None:
    server = yaml.safe_load(COMPOSE.read_text())["services"]["a"]
    grace, drain = server["stop_grace_period"], server["environment"]["REJOINDER_DRAIN_S"]
    assert int(grace.removesuffix("s")) >= int(drain) + LAST_WORDS_S


def test_the_settings_of_compose_are_loaded(tmp_path: Path) -> None:
    environment = yaml.safe_load(COMPOSE.read_text())["services"]["a"]["environment"]
    assert unknown_variables(environment) == ""
    environment |= {"REJOINDER_HOST": "0.0.0.0", "REJOINDER_API_KEYS": "0" * 64}
    shown = run_command("serve", "--print-config", folder=tmp_path, **environment)
    assert shown.returncode == 0 and "172.30.0.10" in shown.stdout, shown.stderr


def test_containers_of_compose_may_do_no_more_than_they_must() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_prometheus_accepts_its_configuration() -> None:
    command = ["promtool", "check", "config", "--syntax-only", "monitoring/prometheus.yml"]
    ran = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0 and "SUCCESS" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "rejoinder@.service").read_text()
    unit = tmp_path / "rejoinder@.service"
    # systemd looks for the program, which is not installed in /opt here.
    unit.write_text(text.replace("/opt/rejoinder/bin", str(Path(sys.executable).parent)))
    for command in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=25", "--no-pager"]):
        ran = subprocess.run(
            ["systemd-analyze", *command, unit], capture_output=True, text=True, timeout=60, check=False
        )
        said = ran.stdout + ran.stderr
        assert ran.returncode == 0 and unit.name not in ran.stderr, said  # it only warns of some mistakes


def test_workflows_are_sound() -> None:
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)
    tool("zizmor", "--offline", "--no-progress", workflow)


def test_the_chart_names_the_images_of_a_release() -> None:
    """The release replaces OWNER in values.yaml only."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    image = jobs["images"]["env"]["IMAGE"].replace("${{ github.repository_owner }}", "OWNER")
    assert image == yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]


def test_images_install_the_wheel_that_was_built() -> None:
    """A name would be looked up, and a higher version in the index would be taken instead."""
    text = (DEPLOY / "images" / "Containerfile").read_text()
    assert "--find-links" not in text
    assert text.count("/wheels/rejoinder-*.whl") == 2


def test_the_linter_of_container_files_finds_nothing() -> None:
    assert tool("hadolint", DEPLOY / "images" / "Containerfile") == ""
