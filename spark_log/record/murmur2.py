"""The murmur2 hash of Kafka's clients, computed over whole Arrow arrays.

The algorithm is ``Utils.murmur2`` and ``Utils.toPositive`` of the Java client: a key goes to the
same partition as with a Kafka producer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.record.arrays import bools_of

_SEED_INT: Final = 0x9747B28C
_M_INT: Final = 0x5BD1E995
_SEED = np.uint32(_SEED_INT)
_M = np.uint32(_M_INT)
_UINT32_MASK: Final = 0xFFFFFFFF
_LONG_WORDS = 256
"""Minimum number of 4-byte words of a key that is hashed alone, with numpy over its words."""


def partition_for_keys(keys: pa.Array, num_partitions: int) -> np.ndarray:
    """Return Kafka's default partition for each key.

    Args:
        keys: a binary or string array; the result for a null has no meaning.
        num_partitions: the number of partitions of the topic.

    Returns:
        An int32 array of the same length.
    """
    positive = murmur2_of_keys(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(num_partitions)).astype(np.int32)


def partition_for_key(key: bytes, num_partitions: int) -> int:
    """Return Kafka's default partition for one key."""
    return (murmur2_of_key(key) & 0x7FFFFFFF) % num_partitions


def murmur2_of_keys(keys: pa.Array) -> np.ndarray:
    """Return the 32-bit murmur2 hash of every key as uint32.

    Args:
        keys: a binary or string array; a null is hashed like an empty key.
    """
    count = len(keys)
    if count == 0:
        return np.empty(0, np.uint32)
    offsets = np.frombuffer(keys.buffers()[1], np.int32, count + 1, keys.offset * 4)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets)
    if keys.null_count:
        lengths = np.where(bools_of(keys.is_null()), 0, lengths)
    raw = keys.buffers()[2]
    data = np.frombuffer(raw, np.uint8) if raw is not None and raw.size else np.zeros(0, np.uint8)

    hashes = _SEED ^ lengths.astype(np.uint32)
    length = int(lengths[0])
    if length < 4 * _LONG_WORDS and (lengths == length).all():
        hashes = _mix_equal(hashes, data, int(starts[0]), length)
    else:
        words = lengths >> 2
        _mix_short(hashes, data, starts, words)
        for row in np.flatnonzero(words >= _LONG_WORDS):
            hashes[row] = _mix_long(int(hashes[row]), data, int(starts[row]), int(words[row]))
        _mix_tail(hashes, data, starts + (words.astype(np.int64) << 2), lengths & 3)

    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def murmur2_of_key(key: bytes) -> int:
    """Return the 32-bit murmur2 hash of one key. `murmur2_of_keys` of one key would be slower."""
    length = len(key)
    hashed = _SEED_INT ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M_INT & _UINT32_MASK
        hashed = (hashed * _M_INT & _UINT32_MASK) ^ ((word ^ word >> 24) * _M_INT & _UINT32_MASK)
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M_INT & _UINT32_MASK
    hashed = (hashed ^ hashed >> 13) * _M_INT & _UINT32_MASK
    return hashed ^ hashed >> 15


def _mix_equal(hashes: np.ndarray, data: np.ndarray, start: int, length: int) -> np.ndarray:
    """Mix in keys that all have the same length."""
    count, whole = len(hashes), length & ~3
    for at in range(0, whole, 4):
        words = np.ndarray((count,), "<u4", data, start + at, (length,))
        hashes = hashes * _M ^ _premixed(words)
    if whole < length:
        for at in reversed(range(whole, length)):
            tail = np.ndarray((count,), np.uint8, data, start + at, (length,))
            hashes = hashes ^ tail.astype(np.uint32) << np.uint32(8 * (at - whole))
        hashes = hashes * _M
    return hashes


def _mix_short(hashes: np.ndarray, data: np.ndarray, starts: np.ndarray, words: np.ndarray) -> None:
    """Mix in all whole words: one word after the other, over all keys that have this word."""
    rows = np.flatnonzero((words > 0) & (words < _LONG_WORDS))
    step = 0
    while rows.size:
        at = starts[rows] + 4 * step
        hashes[rows] = hashes[rows] * _M ^ _premixed(_words_at(data, at))
        step += 1
        rows = rows[words[rows] > step]


def _mix_long(seed: int, data: np.ndarray, start: int, words: int) -> int:
    """Mix in the whole words of one long key; only the last, sequential step runs in Python."""
    multiplier = int(_M)
    mixed = _premixed(np.frombuffer(data[start : start + 4 * words].tobytes(), "<u4"))
    for word in mixed.tolist():
        seed = (seed * multiplier & 0xFFFFFFFF) ^ word
    return seed


def _mix_tail(
    hashes: np.ndarray, data: np.ndarray, ends: np.ndarray, remainders: np.ndarray
) -> None:
    """Mix in the one to three bytes after the last whole word."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(remainders > byte)
        hashes[rows] ^= data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(remainders)
    hashes[rows] *= _M


def _premixed(words: np.ndarray) -> np.ndarray:
    words = words * _M
    words ^= words >> np.uint32(24)
    words *= _M
    return words


def _words_at(data: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the little-endian words at byte positions, through a view with stride 1."""
    if data.size < 4:
        return np.zeros(0, np.uint32)
    every: np.ndarray = np.ndarray((data.size - 3,), "<u4", data, strides=(1,))
    words: np.ndarray = every[positions]
    return words
