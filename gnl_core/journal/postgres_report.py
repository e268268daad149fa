"""What a PostgreSQL server's settings mean for batches that were acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from gnl_core.journal.durability import DurabilityFinding, DurabilityLevel

SETTINGS = b"""
SELECT name, setting FROM pg_settings WHERE name IN
  ('synchronous_commit', 'synchronous_standby_names', 'fsync', 'full_page_writes', 'data_checksums', 'server_version')
UNION ALL SELECT 'in_recovery', pg_is_in_recovery()::text
"""


def judge(settings: Mapping[str, str]) -> tuple[DurabilityFinding, ...]:
    """Return what the settings mean, in a fixed order; one that the server does not have is left out."""
    return tuple(
        DurabilityFinding(setting=name, value=settings[name], level=level, meaning=meaning)
        for name, read in _READERS.items()
        if name in settings
        for level, meaning in [read(settings[name], settings)]
    )


_Ruling = tuple[DurabilityLevel, str]


def _server_version(value: str, _: Mapping[str, str]) -> _Ruling:
    del value
    return "ok", "The release of the server."


def _in_recovery(value: str, _: Mapping[str, str]) -> _Ruling:
    if value in ("true", "on"):
        return "fault", "The server is a standby: nothing can be written. Name the primary."
    return "ok", "The server takes writes."


def _fsync(value: str, _: Mapping[str, str]) -> _Ruling:
    if value == "on":
        return "ok", "Commits reach the disk before they are acknowledged."
    return "fault", "A crash of the machine may lose acknowledged batches and damage the database. Turn it on."


def _full_page_writes(value: str, _: Mapping[str, str]) -> _Ruling:
    if value == "on":
        return "ok", "A page that was torn by a crash is restored."
    return "fault", "A crash of the machine may leave torn pages, unless the file system writes pages whole."


def _data_checksums(value: str, _: Mapping[str, str]) -> _Ruling:
    if value == "on":
        return "ok", "A page that the disk damaged is noticed when it is read."
    return "note", "A page that the disk damaged is noticed only where its damage shows."


def _synchronous_commit(value: str, settings: Mapping[str, str]) -> _Ruling:
    if value == "off":
        return "note", (
            "The server's default may lose what it acknowledged last. The journal sets 'on' for its own transactions; "
            "other tables of the same work are not covered."
        )
    if value in ("local", "remote_write") and settings.get("synchronous_standby_names"):
        return "fault", (
            "Batches are acknowledged before a standby has them on its disk: a failover may lose the last ones, and "
            "their effects would run again. Set it to 'on'."
        )
    return "ok", "What is acknowledged is on the server's disk, and on those of its synchronous standbys if it has any."


def _synchronous_standby_names(value: str, _: Mapping[str, str]) -> _Ruling:
    if value:
        return "ok", "These standbys must have a commit before it is acknowledged."
    return "note", (
        "No standby is waited for. A crash of this server loses nothing; a failover to a standby may lose the batches "
        "acknowledged last, and their effects would run again. On a single server there is nothing to fail over to."
    )


_READERS = {
    "server_version": _server_version,
    "in_recovery": _in_recovery,
    "fsync": _fsync,
    "full_page_writes": _full_page_writes,
    "data_checksums": _data_checksums,
    "synchronous_commit": _synchronous_commit,
    "synchronous_standby_names": _synchronous_standby_names,
}
