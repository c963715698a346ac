"""Writes what is wrong with this node's vGPUs into the run folder."""

from collections.abc import Mapping
from typing import Any

import structlog

from kubeshare.api.vgpu_readiness import failure
from kubeshare.node.node_view import NodeView
from kubeshare.tokens.files.degraded import write_degraded
from kubeshare.tokens.files.run_folder import Paths

log = structlog.get_logger(__name__)


class DegradedGpus:
    """Keeps the file for `kubeshare top` up to date.

    Args:
        view: this node's vGPUs.
        paths: the run folder.
    """

    def __init__(self, view: NodeView, paths: Paths) -> None:
        self._view = view
        self._paths = paths
        self._written: Mapping[str, str] | None = None

    def follow(self) -> None:
        """Write the file now, which may be a former agent's, and at each change."""
        self._view.vgpus.subscribe(self._update)
        self._update()

    def _update(self, _change: Any = None) -> None:
        messages = {
            vgpu.spec.uuid: f"{problem.reason}: {problem.message}"
            for vgpu in self._view.all_vgpus()
            if vgpu.spec.uuid and (problem := failure(vgpu))
        }
        if messages == self._written:
            return
        try:
            write_degraded(self._paths, messages)
            self._written = messages
        except OSError as error:
            log.warning("cannot say which GPUs are degraded, next change again", error=str(error))
