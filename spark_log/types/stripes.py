"""Stripes of a topic, as they are described."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StripeDescription:
    """One stripe of a topic, by a listing of its directory.

    A stripe is a sequence of objects with the newest records of its partitions. Below its newest
    home marker all records are at home, in segments of their partitions.

    Attributes:
        stripe: the stripe's number. Partition p is in stripe p modulo the number of stripes.
        path: the stripe's directory, relative to the cluster's root.
        end_number: the number that the next object gets.
        home_number: the number of the newest home marker; 0 without one.
        objects: the number of objects that are not at home.
        behind_bytes: the size of these objects.
        behind_ms: the time since the oldest of them was appended, in milliseconds, by the storage's
            time when the stripe's newest file was; 0 without such objects.
        files: the number of all files, with those below the marker that are not deleted yet.
        size_bytes: the size of all files.
    """

    stripe: int
    path: str
    end_number: int
    home_number: int
    objects: int
    behind_bytes: int
    behind_ms: int
    files: int
    size_bytes: int
