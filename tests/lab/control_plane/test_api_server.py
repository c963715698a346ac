"""The API server alone: what tests of schemas, policies and controllers stand on."""

import pytest

from kubeshare.lab.control_plane.api_server import ApiServer, etcd_arguments
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver


def test_the_api_server_is_the_version_that_the_module_asks_for(apiserver: ApiServer) -> None:
    assert "Server Version: v1.36." in apiserver.kubectl("version")


def test_the_administrator_may_create_things(apiserver: ApiServer) -> None:
    apiserver.kubectl("create", "configmap", "made-by-admin", "--from-literal=a=b")

    assert "made-by-admin" in apiserver.kubectl("get", "configmaps", "-o", "name")


def test_somebody_without_a_role_may_not(apiserver: ApiServer) -> None:
    stranger = apiserver.kubeconfig_for("stranger", ("system:authenticated",))

    with pytest.raises(LabError, match="forbidden"):
        apiserver.kubectl("get", "secrets", kubeconfig=stranger)


def test_a_pod_can_be_created_without_a_controller_manager(apiserver: ApiServer) -> None:
    apiserver.kubectl("run", "bare", "--image=none", "--restart=Never")

    assert "bare" in apiserver.kubectl("get", "pods", "-o", "name")


def test_etcd_reports_progress_as_kubeadm_has_it(apiserver: ApiServer) -> None:
    """Else a kind whose objects never change gets no bookmark in the first two minutes."""
    assert "--watch-progress-notify-interval=5s" in etcd_arguments(apiserver.settings)
