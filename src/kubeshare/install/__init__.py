"""Installs KubeShare on a cluster, and removes it again.

``manifests`` reads what is under ``deploy/`` and fits it to a cluster (image,
driver root); ``rollout`` applies it in the order in which the parts need each
other and waits until they are up.
"""
