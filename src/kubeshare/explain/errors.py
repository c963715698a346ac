"""What is wrong with a cluster that is to be read."""


class NotInstalledError(Exception):
    """KubeShare is not installed on the cluster."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("this cluster has no KubeShare: `kubeshare install` puts it there")
