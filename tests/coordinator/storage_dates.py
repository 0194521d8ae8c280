"""A local disk whose files have last-modified times of a test's clock."""

from dataclasses import replace
from pathlib import Path

from spark_log.storage.local import LocalStore


def dated_by(clock, monkeypatch):
    """Let local stores date files by this clock until the test ends; return the dates by path.

    A file gets its date when a store puts it. A file that another program has put or replaced gets
    it when a store first lists it or asks for its head.
    """
    dates: dict[str, tuple[int, int]] = {}

    def dating(put):
        def dated(self, path, *given, **options):
            put(self, path, *given, **options)
            file = Path(self.directory_url(path))
            dates[str(file)] = file.stat().st_ino, clock.time_us()

        return dated

    def shown(store, file):
        path = Path(store.directory_url(file.path))
        try:
            inode = path.stat().st_ino
        except FileNotFoundError:
            return file
        if dates.get(str(path), (None,))[0] != inode:
            dates[str(path)] = inode, clock.time_us()
        return replace(file, modified_us=dates[str(path)][1])

    for name in ("put", "put_if_absent"):
        monkeypatch.setattr(LocalStore, name, dating(getattr(LocalStore, name)))
    list_files, head = LocalStore.list, LocalStore.head

    def listed(self, *where, **options):
        return (shown(self, file) for file in list_files(self, *where, **options))

    monkeypatch.setattr(LocalStore, "list", listed)
    monkeypatch.setattr(LocalStore, "head", lambda self, path: shown(self, head(self, path)))
    return dates
