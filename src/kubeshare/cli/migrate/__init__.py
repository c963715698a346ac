"""``kubeshare migrate``: moves a cluster to KubeShare under its running pods."""
