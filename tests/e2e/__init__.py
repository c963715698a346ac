"""The life of SharePods on a real Kubernetes, from the manifest to the GPU and back.

Nothing is faked here but the GPU: a lab is booted, KubeShare is installed on it as
an administrator would, and each test plays in a namespace of its own (``Space``) on
that ``Stage``. What a GPU has really done is read from its own log.

A package, so that pytest takes its lab down when its last test has ended.
"""
