"""What is wrong with a cluster that is to be read."""

from collections.abc import Sequence


class NotAllowedError(Exception):
    """The user may not read what a decision depends on."""

    exit_code = 3

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"a decision depends on the whole cluster, and you may not list all "
            f"{', '.join(missing)}: ask an administrator to bind you the ClusterRole "
            "kubeshare-explain"
        )


class NotInstalledError(Exception):
    """KubeShare is not installed on the cluster."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("this cluster has no KubeShare: `kubeshare install` puts it there")
