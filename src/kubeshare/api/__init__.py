"""Reads and writes KubeShare's objects and the Kubernetes objects around them.

``types`` has narrow, frozen structs: the fields that controllers read, not all of an object, so
a struct is never written back whole. ``state`` has the stores that controllers share, down to
the core's ledger. ``predicates`` answers on which nodes a pod may run. Beside them are the JSON
patches of holders (``holders``), their codec (``holder_codec``), parsed demands (``demands``),
the configuration, and helpers for pods and SharePods.
"""

import kubeshare.kube  # noqa: F401 - before any module imports structlog, which would load rich
