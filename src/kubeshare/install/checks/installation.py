"""Judges whether KubeShare is installed whole, of one version, and at work."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import kubeshare
from kubeshare.api import configuration
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE, SCHEDULER
from kubeshare.core.errors import InvalidValueError
from kubeshare.install.checks.facts import InstallationFacts
from kubeshare.install.checks.finding import Check, Verdict, fail, listed, ok, warn
from kubeshare.install.manifests import Manifest
from kubeshare.install.readiness import WORKLOADS, established, rolled_out
from kubeshare.install.stored_versions import missing_versions

_INSTALL: Final = "kubeshare install --image IMAGE"
_POLICIES: Final = "AdmissionPolicy"
_CRD: Final = "CustomResourceDefinition"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_PRIVILEGED: Final = "privileged"
_LEASE_SECONDS: Final = 15.0
"""Seconds without a renewal after which somebody else leads; a Lease says it itself."""

ObjectKey = tuple[str, str, str]


def object_key(manifest: Mapping[str, Any]) -> ObjectKey:
    """Kind, namespace and name of an object."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def contains(stored: Any, wanted: Any) -> bool:
    """Whether a stored value has all of a wanted one; the API server adds defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            contains(stored.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(contains(*pair) for pair in zip(stored, wanted, strict=True))
        )
    # The API server leaves out what is empty, and keeps quantities as text.
    return stored == wanted or str(stored) == str(wanted) or (not stored and not wanted)


def _namespace(facts: InstallationFacts) -> Verdict:
    found = facts.objects.get(("Namespace", "", NAMESPACE))
    fix = f"kubectl label --overwrite namespace {NAMESPACE} {_ENFORCE}={_PRIVILEGED}"
    if found is None:
        return fail(f"there is no namespace {NAMESPACE}", _INSTALL)
    level = (found["metadata"].get("labels") or {}).get(_ENFORCE, "")
    if not level and not (refused := list(_without_pods(facts))):
        return warn(
            f"Pod Security of {NAMESPACE} is not set; this cluster's default allows the node "
            "programs, and a stricter one would refuse them",
            fix,
        )
    if level != _PRIVILEGED:
        of_whom = f", such as {listed(refused)}" if not level else ""
        return fail(
            f"Pod Security of {NAMESPACE} is {level or 'not set'}: it refuses the node programs"
            f"{of_whom}, which mount folders of the node",
            fix,
        )
    return ok(f"Pod Security of {NAMESPACE} is {_PRIVILEGED}")


def _without_pods(facts: InstallationFacts) -> Iterator[str]:
    """DaemonSets of which nodes should have pods, and none has."""
    for (kind, _, name), found in sorted(facts.objects.items()):
        status = found.get("status", {})
        if (
            kind == "DaemonSet"
            and status.get("desiredNumberScheduled", 0)
            and not status.get("currentNumberScheduled", 0)
        ):
            yield name


def _kinds(facts: InstallationFacts) -> Verdict:
    wanted = [each for each in facts.wanted if each["kind"] == _CRD]
    unserved = [name for name, _, found in _found(facts, wanted) if not found or established(found)]
    if unserved:
        return fail(f"not served: {listed(unserved)}", _INSTALL)
    old = [
        f"{name} ({', '.join(extra)})"
        for name, manifest, found in _found(facts, wanted)
        if (extra := missing_versions(found, manifest))
    ]
    if old:
        return warn(
            f"objects are stored in versions that this one does not have: {listed(old)}",
            "run the `kubeshare install` of the version that has them",
        )
    if changed := _changed(facts, wanted):
        return warn(f"not those of version {kubeshare.__version__}: {listed(changed)}", _INSTALL)
    return ok(f"{len(wanted)} kinds are established, and stored in one version")


def _policies(facts: InstallationFacts) -> Verdict:
    wanted = [each for each in facts.wanted if _POLICIES in each["kind"]]
    missing = [name for name, _, found in _found(facts, wanted) if not found]
    if missing:
        return fail(f"missing, so rules are not enforced: {listed(missing)}", _INSTALL)
    if changed := _changed(facts, wanted):
        return fail(f"not those of version {kubeshare.__version__}: {listed(changed)}", _INSTALL)
    return ok(f"{len(wanted)} admission policies and bindings are as installed")


def _others(facts: InstallationFacts) -> Verdict:
    wanted = [
        each
        for each in facts.wanted
        if each["kind"] not in {_CRD, "Namespace", *WORKLOADS} and _POLICIES not in each["kind"]
    ]
    missing = [
        f"{manifest['kind']} {name}" for name, manifest, found in _found(facts, wanted) if not found
    ]
    if missing:
        return fail(f"missing: {listed(missing)}", _INSTALL)
    return ok(f"{len(wanted)} accounts, roles, classes and others are there")


def _programs(facts: InstallationFacts) -> Verdict:
    wanted = [each for each in facts.wanted if each["kind"] in WORKLOADS]
    states = [
        (name, rolled_out(found) if found else "missing")
        for name, _, found in _found(facts, wanted)
    ]
    if bad := [f"{name}: {why}" for name, why in states if why]:
        return fail(
            listed(bad), f"kubectl get pods -n {NAMESPACE}; kubectl describe pods -n {NAMESPACE}"
        )
    return ok(f"{', '.join(name for name, _ in states)} are up")


def _versions(facts: InstallationFacts) -> Verdict:
    images = {
        container["image"]
        for key, found in facts.objects.items()
        if key[0] in WORKLOADS
        for container in found["spec"]["template"]["spec"]["containers"]
    }
    agents = {each.spec.agent_version for each in facts.gpunodes} - {""}
    if len(images) > 1:
        return warn(f"programs have several images: {listed(sorted(images))}", _INSTALL)
    if agents - {kubeshare.__version__}:
        return warn(
            f"node agents are of version {listed(sorted(agents))}, this command is of "
            f"{kubeshare.__version__}",
            "use the command of the installed version, or upgrade: " + _INSTALL,
        )
    return ok(f"one image, {listed(sorted(images))}; node agents {listed(sorted(agents)) or '-'}")


def _leaders(facts: InstallationFacts) -> Verdict:
    bad = [f"{name}: {why}" for name in (SCHEDULER, DEVICE_MANAGER) if (why := _gone(facts, name))]
    if bad:
        return fail(
            listed(bad),
            f"kubectl logs -n {NAMESPACE} deployment/{SCHEDULER}; the same for {DEVICE_MANAGER}",
        )
    return ok("scheduler and device manager have leaders, which renew their Leases")


def _gone(facts: InstallationFacts, name: str) -> str:
    """Why nobody leads; ``""`` if somebody does."""
    spec = next((each.spec for each in facts.leases if each.metadata.name == name), None)
    if spec is None or not spec.holder_identity or not spec.renew_time:
        return "nobody leads"
    age = (facts.now - datetime.fromisoformat(spec.renew_time)).total_seconds()
    if age > (spec.lease_duration_seconds or _LEASE_SECONDS) + 1:  # the server's clock is rounded
        return f"{spec.holder_identity} renewed its Lease {age:.0f} s ago"
    return ""


def _configuration(facts: InstallationFacts) -> Verdict:
    name = f"ConfigMap {NAMESPACE}/{configuration.NAME}"
    if facts.configuration is None:
        return warn(f"{name} is missing: defaults are in force", _INSTALL)
    try:
        configuration.parse(facts.configuration)
    except InvalidValueError as error:
        return fail(
            f"{name} is not acceptable, and the one before is in force: {error}",
            f"kubectl edit configmap -n {NAMESPACE} {configuration.NAME}",
        )
    return ok(f"{name} is valid")


def _agents(facts: InstallationFacts) -> Verdict:
    logs = f"kubectl logs -n {NAMESPACE} daemonset/kubeshare-node-agent"
    reported = {each.metadata.name for each in facts.gpunodes if each.spec.devices}
    if silent := sorted(facts.gpu_nodes - reported):
        return fail(f"no node agent reports the GPUs of {listed(silent)}", logs)
    if unattached := sorted(reported - facts.attached_nodes):
        return fail(f"the kubelet knows no driver for shares on {listed(unattached)}", logs)
    count = sum(len(each.spec.devices) for each in facts.gpunodes)
    return ok(f"agents of {len(reported)} nodes report {count} GPUs, and attach shares")


def _gpus(facts: InstallationFacts) -> Verdict:
    bad = [
        f"{each.metadata.name} GPU {device.index}: {device.message or 'not healthy'}"
        for each in facts.gpunodes
        for device in each.spec.devices
        if not device.gives_shares
    ]
    if bad:
        return warn(f"get no new shares: {listed(bad)}", "see docs/nodes-and-gpus.md")
    return ok("all GPUs accept shares")


INSTALLATION: Final = (
    Check("namespace", ("objects",), _namespace),
    Check("kinds", ("objects",), _kinds),
    Check("admission policies", ("objects",), _policies),
    Check("other objects", ("objects",), _others),
    Check("programs", ("objects",), _programs),
    Check("versions", ("objects", "gpunodes"), _versions),
    Check("leaders", ("leases",), _leaders),
    Check("configuration", ("configuration",), _configuration),
    Check("node agents", ("gpunodes", "gpu_nodes", "attached_nodes"), _agents),
    Check("shareable GPUs", ("gpunodes",), _gpus),
)


def _found(
    facts: InstallationFacts, wanted: list[Manifest]
) -> Iterator[tuple[str, Manifest, Mapping[str, Any]]]:
    """The name of each manifest, the manifest, and what the cluster has of it; empty for none."""
    for manifest in wanted:
        found = facts.objects.get(object_key(manifest), {})
        yield manifest["metadata"]["name"], manifest, found


def _changed(facts: InstallationFacts, wanted: list[Manifest]) -> list[str]:
    """The names of objects whose spec lacks something of the manifest's."""
    return sorted(
        {
            name
            for name, manifest, found in _found(facts, wanted)
            if not contains(found, {"spec": manifest["spec"]})
        }
    )
