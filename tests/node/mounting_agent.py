"""What a node agent does about the run folder's file system: a program, run in namespaces.

``HOST FOLDER ACTION…``: ``HOST`` is a process in the namespace of the node. Prints a line of JSON
for each action.
"""

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

from kubeshare.node import run_mount
from kubeshare.node.run_mount import HostMounter
from kubeshare.tokens.files.run_folder import Paths


def act(action: str, folder: Path, host: int) -> Any:
    paths = Paths(folder)
    match action:
        case "provide":
            try:
                return run_mount.provide(folder, HostMounter(host))
            except OSError as error:
                return {"failed": errno.errorcode[error.errno or 0]}
        case "take_away":
            return run_mount.take_away(folder, HostMounter(host))
        case "prepare":
            paths.boot.touch()
        case "grant":
            paths.make()
            paths.grant("a").write_text("{")
        case "revoke":
            paths.grant("a").unlink()
        case "see":
            status = os.statvfs(folder)
            names = sorted(each.name for each in folder.iterdir())
            size = status.f_blocks * status.f_frsize
            return {"bytes": size, "inodes": status.f_files, "names": names}
    return None


host, folder, *actions = sys.argv[1:]
for each in actions:
    sys.stdout.write(json.dumps(act(each, Path(folder), int(host))) + "\n")
