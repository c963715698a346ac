"""Gives users of the API server every right, so that what refuses them is a policy alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError


@contextmanager
def every_right(cluster: ApiServer, name: str, *users: str) -> Iterator[None]:
    """Let these users do everything inside the context; it is in force when that begins.

    The API server learns of a binding a moment after it has stored it.
    """
    flags = [f"--user={user}" for user in users]
    cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", *flags)
    wait_until(lambda: all(_may_read_rights(cluster, user) for user in users), "the rights")
    yield
    cluster.kubectl("delete", "clusterrolebinding", name)


def _may_read_rights(cluster: ApiServer, user: str) -> bool:
    try:
        cluster.kubectl("get", "clusterroles", f"--as={user}")
    except LabError as error:
        if "(Forbidden)" in str(error):
            return False
        raise
    return True
