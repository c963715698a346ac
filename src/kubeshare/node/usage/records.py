"""Keeps accounts on the node's disk until the API server has them.

One file an account, written whole by rename and removed once its end is in the API server. The
folder outlives the machine's boot, unlike the grants.
"""

from pathlib import Path

import structlog
from msgspec import Struct, json

from kubeshare.api.types.share_usage import ShareUsageStatus
from kubeshare.tokens.files.run_folder import GrantError, read_document, write_whole

log = structlog.get_logger(__name__)


class Record(Struct, frozen=True, kw_only=True, rename="camel"):
    """An account, and what it was measured by.

    Attributes:
        name: of the ShareUsage.
        namespace: of the ShareUsage.
        boot: the boot of the node in which the grant was made.
        started_ns: when, by a clock that begins with the boot.
        status: the account.
    """

    name: str
    namespace: str
    boot: str
    started_ns: int
    status: ShareUsageStatus


class RecordFolder:
    """The files of one node, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_all(self) -> list[Record]:
        """All records; a file that is none is removed."""
        found = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                found.append(read_document(file, Record))
            except (GrantError, OSError) as error:
                log.warning("account cannot be read and is dropped", reason=str(error))
                self.remove(file.stem)
        return found

    def write(self, record: Record) -> None:
        """Write a record; where that fails, the last state stays on disk."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._file(record.name), json.encode(record))
        except OSError as error:
            log.error("account not written to disk", name=record.name, reason=str(error))  # noqa: TRY400 - the words say it all

    def remove(self, name: str) -> None:
        """Remove a record; does nothing where there is none."""
        try:
            self._file(name).unlink(missing_ok=True)
        except OSError as error:
            log.error("account not removed from disk", name=name, reason=str(error))  # noqa: TRY400 - the words say it all

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"
