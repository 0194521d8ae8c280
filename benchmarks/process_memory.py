"""Memory of a process, as Linux counts it."""

from pathlib import Path


def memory_bytes(pid: int | str = "self") -> dict[str, int]:
    """Return the fields of ``/proc/<pid>/status`` that are sizes, such as ``VmRSS``, in bytes.

    Empty where the process has ended, or the system has no ``/proc``.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in fields if each[2:] == ["kB"]}
