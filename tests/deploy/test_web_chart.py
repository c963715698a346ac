"""The page in the cluster, as the Helm chart renders it."""

from typing import Any

import pytest

from deploy.helm import IMAGE, Helm, HelmError, hook_of
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress
from kubeshare.web.__main__ import _parser

pytestmark = pytest.mark.slow

Raw = dict[str, Any]
TLS = {"enabled": True, "hosts": ["gpus.example", "gpus"], "tlsSecret": "page-tls"}
PLAIN = {"enabled": True, "hosts": ["gpus.example"], "insecureHTTP": True}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(binaries.helm(Progress()), tmp_path_factory.mktemp("helm"))


def rendered(helm: Helm, web: Raw, **values: Any) -> dict[str, Raw]:
    """What the switch adds to a release, by kind."""

    def keyed(objects: list[Raw]) -> dict[tuple[str, str], Raw]:
        return {(one["kind"], one["metadata"]["name"]): one for one in objects if not hook_of(one)}

    plain, found = keyed(helm.render(**values)), keyed(helm.render(web=web, **values))
    assert plain.items() <= found.items()
    return {kind: one for (kind, name), one in found.items() if (kind, name) not in plain}


def test_it_is_there_only_where_it_is_switched_on(helm: Helm) -> None:
    assert rendered(helm, {"hosts": ["gpus.example"], "tlsSecret": "page-tls"}) == {}
    found = rendered(helm, TLS)
    assert {kind: one["metadata"]["name"] for kind, one in found.items()} == dict.fromkeys(
        ("ServiceAccount", "Service", "Deployment"), "kubeshare-web"
    )


def test_its_account_has_no_rights_and_its_pod_no_token_of_it(helm: Helm) -> None:
    for one in helm.render(web=TLS):
        for subject in one.get("subjects", []):
            assert subject["name"] != "kubeshare-web", one
    found = rendered(helm, TLS)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["volumes"] == [
        {"name": "api", "configMap": {"name": "kube-root-ca.crt"}},
        {"name": "tls", "secret": {"secretName": "page-tls", "defaultMode": 0o440}},
    ]


def test_its_pod_keeps_the_restricted_pod_security_standard(helm: Helm) -> None:
    pod = rendered(helm, TLS)["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@pytest.mark.parametrize(
    ("web", "port", "tls"), [(TLS, ("https", 443), True), (PLAIN, ("http", 80), False)]
)
def test_its_command_is_one_and_the_service_leads_to_it(
    helm: Helm, web: Raw, port: tuple[str, int], tls: bool
) -> None:
    found = rendered(helm, web | {"viewers": 40}, scheduler={"policy": "topology"})
    [container] = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    program, options = container["command"][:3], container["command"][3:]
    assert program == ["python3", "-m", "kubeshare.web"]
    read = _parser().parse_args(options)
    assert read.host == web["hosts"]
    assert (read.viewers, read.policy) == (40, "topology")
    assert (read.tls_cert is not None, read.insecure_http) == (tls, not tls)
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = [read.ca_file, *([str(read.tls_cert), str(read.tls_key)] if tls else [])]
    assert {file.rpartition("/")[0] for file in files} == mounts
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"web": read.port, "metrics": read.health_port}
    [service] = found["Service"]["spec"]["ports"]
    assert (service["name"], service["port"]) == port
    assert service["targetPort"] == "web"
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"].items() <= labels.items()


def test_it_has_what_other_programs_have(helm: Helm) -> None:
    more = {"resources": {"limits": {"memory": "4Gi"}}, "nodeSelector": {"pool": "system"}}
    values = {"imagePullSecrets": ["a"], "namespace": "gpu-sharing"}
    found = rendered(helm, TLS | more, **values)
    assert {one["metadata"]["namespace"] for one in found.values()} == {"gpu-sharing"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == f"{IMAGE['repository']}:{IMAGE['tag']}"
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["imagePullSecrets"] == [{"name": "a"}]
    assert not {"hosts", "tlsSecret", "insecureHTTP", "viewers", "enabled"} & pod.keys()


def test_the_network_policy_lets_browsers_reach_it(helm: Helm) -> None:
    objects = helm.render(web=TLS, networkPolicy={"enabled": True})
    [policy] = [one for one in objects if one["kind"] == "NetworkPolicy"]
    assert {"ports": [{"port": "web"}]} in policy["spec"]["ingress"]
    assert {"ports": [{"port": "metrics"}]} not in policy["spec"]["ingress"]


@pytest.mark.parametrize(
    ("web", "words"),
    [
        ({"enabled": True, "tlsSecret": "a"}, "web.hosts is empty"),
        ({"enabled": True, "hosts": ["a"]}, "the page needs TLS"),
        (TLS | {"insecureHTTP": True}, "exclude each other"),
    ],
)
def test_what_cannot_work_is_refused(helm: Helm, web: Raw, words: str) -> None:
    with pytest.raises(HelmError, match=words):
        helm.render(web=web)
