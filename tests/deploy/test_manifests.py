"""The manifests render, are valid for several versions of Kubernetes, and fit the program."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors import ROSTER
from supervisor.artifacts.backends import chosen_artifacts
from supervisor.artifacts.settings import ArtifactSettings, load_artifact_settings
from supervisor.config import Settings, load_settings
from supervisor.execution import LAST_WORDS_SECONDS
from supervisor.project_settings import DatabaseSettings
from supervisor.urls import runtime_urls
from supervisor.wiring import chosen_actors
from tests.deploy.promql import metrics_in
from tests.deploy.tools import DEPLOY, ROOT, ask, passes, read

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("dev", "production")
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
OTHERS = [name for name in COMPONENTS if name != "workers"]
VERSIONS = ("1.28", "1.32", "1.37")
# Kinds of operators; Kubernetes itself has no schema of them
CUSTOM = {"Cluster", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
LIBPQ = {"PGSSLMODE", "PGSSLROOTCERT"}
WAY_OUT_SECONDS = 10

Manifest = dict[str, Any]


@cache
def render(directory: Path) -> list[Manifest]:
    version = ask("kubectl", "version", "--client", "--output=json").stdout
    kustomize = json.loads(version).get("kustomizeVersion", "v0")
    if int(re.sub(r"\D.*", "", kustomize[1:]) or 0) < 5:
        pytest.skip(f"kubectl has kustomize {kustomize}: it takes kubectl 1.27 or newer")
    return [one for one in yaml.safe_load_all(passes("kubectl", "kustomize", directory)) if one]


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(KUBERNETES / "overlays" / request.param)


def the(manifests: list[Manifest], kind: str, name: str = "tenure") -> Manifest:
    """By its name; the name of a ConfigMap ends with the digest of its contents."""
    named = re.compile(rf"{name}(-[a-z0-9]{{10}})?" if kind == "ConfigMap" else name)
    [found] = [one for one in manifests if one["kind"] == kind and named.fullmatch(one["metadata"]["name"])]
    return found


def with_components(directory: Path, *components: str) -> list[Manifest]:
    """The base with these components, in this order."""
    up = Path(*[".."] * (len(directory.resolve().parts) - 1))  # kustomize takes relative paths only
    parts = [KUBERNETES / "components" / name for name in components]
    content = {
        "resources": [str(up / (KUBERNETES / "base").relative_to("/"))],
        "components": [str(up / part.relative_to("/")) for part in parts],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return render(directory)


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for one in manifests:
        if one["kind"] in {"Deployment", "Job", "StatefulSet"}:
            yield one["metadata"]["name"], one["spec"]["template"]


def fits(selector: Manifest, labels: Manifest) -> bool:
    return bool(selector["matchLabels"].items() <= labels.items())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(overlay: list[Manifest], version: str) -> None:
    """Strictly: a field that the version does not know is a mistake."""
    validator = pytest.importorskip(
        "kubernetes_validate", reason="the Python package kubernetes-validate is not installed"
    )
    checked = [one for one in overlay if one["kind"] not in CUSTOM]
    assert {"Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget"} <= {one["kind"] for one in checked}
    for one in checked:
        validator.validate(one, version, strict=True)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_can_be_added(component: str, tmp_path: Path) -> None:
    names = {f"{one['kind']}/{one['metadata']['name']}" for one in with_components(tmp_path, component)}
    assert {"Deployment/tenure", "Job/tenure-migrate", "ServiceAccount/tenure"} < names


def test_every_pod_is_confined(overlay: list[Manifest]) -> None:
    for name, template in pods(overlay):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"requests", "limits"} == container["resources"].keys(), name
            mounted = {place["mountPath"] for place in container["volumeMounts"]}
            assert "/tmp" in mounted, name  # noqa: S108  of the pod
            assert re.search(r":[\w.-]*\d[\w.-]*$", container["image"]), (
                f"{name} has an image without a version"
            )


def test_secrets_are_named_and_never_written(overlay: list[Manifest]) -> None:
    """A URL for each role; the administrator's is known to the migration alone."""
    for name, template in pods(overlay):
        for container in template["spec"]["containers"]:
            secrets = {
                entry["name"] for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})
            }
            plain = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
            assert not [key for key, value in plain.items() if re.search(r"://[^$/]*:[^$]*@", value)]
            assert not [key for key in plain if re.search("PASSWORD|TOKEN|_KEY$", key)]
            if name == "tenure":
                assert {
                    "TENURE_DATABASE_URL",
                    "TENURE_WORKER_DATABASE_URL",
                    "TENURE_MAINTENANCE_DATABASE_URL",
                    "TENURE_API_TOKEN",
                } <= secrets
                assert not {"TENURE_MIGRATE_DATABASE_URL"} & (secrets | plain.keys())


def test_what_a_value_refers_to_stands_before_it(overlay: list[Manifest]) -> None:
    """Kubernetes fills in $(NAME) only from what is above it."""
    for _name, template in pods(overlay):
        for container in template["spec"]["containers"]:
            above: set[str] = set()
            for entry in container["env"]:
                assert set(re.findall(r"\$\((\w+)\)", entry.get("value", ""))) <= above
                above.add(entry["name"])


def test_every_setting_is_one_of_the_program(overlay: list[Manifest]) -> None:
    given = set(the(overlay, "ConfigMap")["data"])
    for name, template in pods(overlay):
        if name.startswith("tenure-postgres"):
            continue
        for container in template["spec"]["containers"]:
            given |= {entry["name"] for entry in container["env"]}
    assert given - known_settings() - LIBPQ - {"MIGRATE_USER", "MIGRATE_PASSWORD"} == set()


def test_a_pod_has_time_to_drain(overlay: list[Manifest]) -> None:
    """Drain, kill and the last words come one after the other, and SIGKILL must not come before their end."""
    data = the(overlay, "ConfigMap")["data"]
    timings = {key: field.default for key, field in Settings.model_fields.items()}
    drain = float(data.get("TENURE_DRAIN_SECONDS", timings["drain_seconds"]))
    kill = float(data.get("TENURE_KILL_SECONDS", timings["kill_seconds"]))
    for spec in (one["spec"]["template"]["spec"] for one in overlay if one["kind"] == "Deployment"):
        assert spec["terminationGracePeriodSeconds"] >= drain + kill + LAST_WORDS_SECONDS + WAY_OUT_SECONDS
        assert "lifecycle" not in spec["containers"][0], "a hook takes its time from the same grace"


def test_probes_ask_for_what_there_is(overlay: list[Manifest]) -> None:
    """Only readiness may depend on the database: else all replicas restart when it is away."""
    for one in (one for one in overlay if one["kind"] == "Deployment"):
        container = one["spec"]["template"]["spec"]["containers"][0]
        paths = {key: container[key]["httpGet"]["path"] for key in container if key.endswith("Probe")}
        assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        [port] = container["ports"]
        assert str(port["containerPort"]) == the(overlay, "ConfigMap")["data"]["TENURE_HTTP_PORT"]


def test_several_replicas_are_kept_apart(overlay: list[Manifest]) -> None:
    deployment = the(overlay, "Deployment")["spec"]
    scaled = [one for one in overlay if one["kind"] == "ScaledObject"]
    assert [one["spec"]["minReplicaCount"] for one in scaled] or deployment["replicas"] == 3
    assert ("replicas" in deployment) != bool(scaled), "one of the two says how many there are"
    assert all(one["spec"]["minReplicaCount"] >= 3 for one in scaled)
    spread = {one["topologyKey"] for one in deployment["template"]["spec"]["topologySpreadConstraints"]}
    assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_selectors_find_the_replicas(overlay: list[Manifest]) -> None:
    labels = the(overlay, "Deployment")["spec"]["template"]["metadata"]["labels"]
    job = the(overlay, "Job", "tenure-migrate")["spec"]["template"]["metadata"]["labels"]
    service = next(one for one in overlay if one["kind"] == "Service" and one["metadata"]["name"] == "tenure")
    budget = the(overlay, "PodDisruptionBudget")["spec"]["selector"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= job.items(), "the migration serves nobody"
    assert fits(budget, labels)
    assert not fits(budget, job)
    policies = {one["metadata"]["name"]: one["spec"] for one in overlay if one["kind"] == "NetworkPolicy"}
    for pod in (labels, job):
        assert {"tenure", "tenure-database"} <= {
            name for name, policy in policies.items() if fits(policy["podSelector"], pod)
        }
    for monitor in (one["spec"] for one in overlay if one["kind"] == "ServiceMonitor"):
        assert fits(monitor["selector"], service["metadata"]["labels"])
        assert {one["port"] for one in monitor["endpoints"]} <= {
            one["name"] for one in service["spec"]["ports"]
        }
        assert {"targetLabel": "job", "replacement": "tenure"} in monitor["endpoints"][0]["relabelings"]


def test_only_who_works_with_the_database_reaches_it(overlay: list[Manifest]) -> None:
    """In production every pod of the cluster could connect."""
    policies = [
        one["spec"]
        for one in overlay
        if one["kind"] == "NetworkPolicy" and "Ingress" in one["spec"]["policyTypes"]
    ]
    pods = the(overlay, "Deployment")["spec"]["template"]["metadata"]["labels"]
    own = [one for one in policies if not fits(one["podSelector"], pods)]
    assert len(own) == 1, "one policy for the pods of the database"
    peers = [
        peer
        for rule in own[0]["ingress"]
        if {"protocol": "TCP", "port": 5432} in rule["ports"]
        for peer in rule["from"]
    ]
    assert any(fits(peer["podSelector"], pods) for peer in peers if "podSelector" in peer)
    assert all(peer.get("podSelector") or peer.get("namespaceSelector") for peer in peers), (
        "an empty one is everybody"
    )
    assert all(rule["ports"] for rule in own[0]["ingress"])


def test_workers_hold_the_workers_login_and_no_other_secret(tmp_path: Path) -> None:
    """Whatever other components there are; a pod of theirs is where programs run."""
    manifests = with_components(tmp_path, *OTHERS, "workers")
    workers = the(manifests, "Deployment", "tenure-workers")["spec"]["template"]["spec"]
    [container] = workers["containers"]
    assert container["args"] == ["up", "--no-lead"]
    given = {entry["name"]: entry for entry in container["env"]}
    secrets = [name for name, entry in given.items() if "value" not in entry]
    assert secrets == ["TENURE_WORKER_DATABASE_URL"]
    login = {"name": "tenure-database", "key": "worker"}
    assert given[secrets[0]]["valueFrom"] == {"secretKeyRef": login}
    assert [list(source) for source in container["envFrom"]] == [["configMapRef"]]
    assert not [volume["name"] for volume in workers["volumes"] if "emptyDir" not in volume]
    assert "initContainers" not in workers
    account = the(manifests, "ServiceAccount", workers["serviceAccountName"])
    assert account["automountServiceAccountToken"] is workers["automountServiceAccountToken"] is False
    leading = the(manifests, "Deployment")["spec"]["template"]["spec"]
    assert leading["serviceAccountName"] != workers["serviceAccountName"]
    assert workers["securityContext"] == leading["securityContext"]


def test_the_settings_of_workers_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every component there is: no setting asks for a secret that these pods do not have."""
    manifests = with_components(tmp_path, *OTHERS, "workers")
    [container] = the(manifests, "Deployment", "tenure-workers")["spec"]["template"]["spec"]["containers"]
    for name, text in the(manifests, "ConfigMap")["data"].items():
        monkeypatch.setenv(name, text)
    for entry in container["env"]:
        monkeypatch.setenv(entry["name"], entry.get("value", "postgresql://worker@db/tenure"))
    monkeypatch.chdir(tmp_path)
    settings = load_settings(lead=False)
    assert runtime_urls(settings).control is None
    assert chosen_artifacts(load_artifact_settings(), settings.state_dir) is None
    assert chosen_actors(settings).keys() == {"command"}


def test_every_domain_has_pods_that_work_for_it(tmp_path: Path) -> None:
    """One that stood in neither list would be worked for by nobody."""
    manifests = with_components(tmp_path, "workers")
    lists = []
    for name in ("tenure", "tenure-workers"):
        [container] = the(manifests, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        given = {entry["name"]: entry.get("value") for entry in container["env"]}
        lists.append(given["TENURE_DOMAINS"].split(","))
    leading, working = lists
    assert sorted([*leading, *working]) == sorted({actor.domain for actor in ROSTER})


def test_workers_are_scraped_and_not_served() -> None:
    """Prometheus finds them and reaches them; the Service of the API and the budget of the others do not."""
    manifests = render(KUBERNETES / "overlays/production")
    workers = the(manifests, "Deployment", "tenure-workers")["spec"]["template"]
    labels = workers["metadata"]["labels"]
    assert not the(manifests, "Service")["spec"]["selector"].items() <= labels.items()
    assert not fits(the(manifests, "PodDisruptionBudget")["spec"]["selector"], labels)
    assert fits(the(manifests, "PodDisruptionBudget", "tenure-workers")["spec"]["selector"], labels)
    assert fits(the(manifests, "Deployment", "tenure-workers")["spec"]["selector"], labels)
    assert not fits(the(manifests, "Deployment")["spec"]["selector"], labels)

    found = the(manifests, "Service", "tenure-workers")
    assert found["spec"]["selector"].items() <= labels.items()
    assert fits(the(manifests, "ServiceMonitor")["spec"]["selector"], found["metadata"]["labels"])
    [port] = found["spec"]["ports"]
    [served] = workers["spec"]["containers"][0]["ports"]
    assert (port["name"], port["targetPort"]) == ("http", served["name"])
    policies = {
        one["metadata"]["name"]
        for one in manifests
        if one["kind"] == "NetworkPolicy" and fits(one["spec"]["podSelector"], labels)
    }
    assert policies == {"tenure", "tenure-database", "tenure-prometheus"}, "no way to the bucket"


def test_waiting_commands_add_no_replicas_that_do_not_run_them(tmp_path: Path) -> None:
    scaled = the(with_components(tmp_path, "autoscaling", "workers"), "ScaledObject")
    [trigger] = scaled["spec"]["triggers"]
    assert 'domain!="command"' in trigger["metadata"]["query"]


def test_the_service_account_has_no_rights(overlay: list[Manifest]) -> None:
    accounts = [one for one in overlay if one["kind"] == "ServiceAccount"]
    assert accounts
    assert all(one["automountServiceAccountToken"] is False for one in accounts)
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} & {one["kind"] for one in overlay}


def test_production_loses_nothing_in_a_failover() -> None:
    cluster = the(render(KUBERNETES / "overlays/production"), "Cluster", "tenure-db")["spec"]
    assert cluster["instances"] >= 3
    assert cluster["postgresql"]["synchronous"] == {
        "method": "any",
        "number": 1,
        "dataDurability": "required",
    }
    assert cluster["postgresql"]["parameters"]["synchronous_commit"] == "on"
    assert cluster["affinity"]["podAntiAffinityType"] == "required"


def test_replicas_are_added_while_runs_wait() -> None:
    manifests = render(KUBERNETES / "overlays/production")
    scaled = the(manifests, "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"] == {"name": the(manifests, "Deployment")["metadata"]["name"]}
    [trigger] = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert list(metrics_in(query)) == ["tenure_run_lag_seconds"]
    assert f'namespace="{scaled["metadata"]["namespace"]}"' in query


@pytest.mark.parametrize("name", ["alerts", "recording"])
def test_the_operator_gets_the_same_rules(name: str) -> None:
    wrapped = read(KUBERNETES / f"components/monitoring/rules-{name}.yaml")
    same = wrapped["spec"] == read(DEPLOY / f"prometheus/{name}.yaml")
    assert same, "run: sh deploy/kubernetes/components/monitoring/wrap.sh"


def test_every_secret_is_documented() -> None:
    """Whoever deploys finds what to make: each Secret and key that production names."""
    page = (ROOT / "docs/deploy.md").read_text()
    wanted = set()
    for component in COMPONENTS:
        text = (KUBERNETES / "components" / component / "kustomization.yaml").read_text()
        wanted |= set(re.findall(r"secretKeyRef: \{name: ([\w-]+), key: ([\w-]+)\}", text))
    for _name, template in pods(render(KUBERNETES / "overlays/production")):
        for container in template["spec"]["containers"]:
            for entry in container["env"]:
                if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                    wanted.add((reference["name"], reference["key"]))
    lacking = [(name, key) for name, key in wanted if not re.search(rf"\| `{name}` \|[^\n]*`{key}`", page)]
    assert not lacking


def known_settings() -> set[str]:
    found = set()
    for settings in (Settings, ArtifactSettings, DatabaseSettings):
        prefix = settings.model_config.get("env_prefix", "")
        for name, field in settings.model_fields.items():
            alias = field.validation_alias
            choices = getattr(alias, "choices", [alias] if alias else [f"{prefix}{name}".upper()])
            found |= {str(choice).upper() for choice in choices}
    return found
