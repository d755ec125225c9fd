"""The zip around a model file, read so that a hostile file can do no harm.

Only what `writing` writes is accepted: a few entries one after the other, each stored or deflated, then a directory
that agrees with the headers of the entries. So no two entries share bytes, no entry is larger than the directory says,
and the memory of all of them is known before the first of them is read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treecdf.persist.checks.values import expect
from treecdf.persist.format import may_hold

_MOST_ENTRIES = 16
_MOST_DIRECTORY = 4096  # bytes
_CHUNK = 1 << 18  # most bytes that one step of decompressing returns
_FED = 1 << 16  # bytes of the file that it is given at once
_STORED, _DEFLATED = 0, 8
_ALLOWED_FLAGS = 0x0806  # how hard deflate tried (bits 1 and 2) and names in UTF-8 (bit 11); no encryption, no patches
# The end of a zip: mark, numbers of disks and entries, bytes and place of the directory, bytes of the comment.
_END = struct.Struct("<4s4H2LH")
# An entry of the directory: mark, writer, what it shares with the header, sizes of name, extra and comment, and place.
_LISTED = struct.Struct("<4sH5H3L5H2L")
# The header in front of an entry: mark, version, flags, method, time, date, CRC, both sizes, sizes of name and extra.
_HEADER = struct.Struct("<4s5H3L2H")


@dataclass(frozen=True)
class _Entry:
    """The place of an entry's bytes, how they are compressed, and their declared uncompressed size."""

    content: memoryview
    method: int
    size: int


class Archive:
    """The entries of a zip, by name; nothing is decompressed before it is asked for.

    data : the whole file.
    """

    def __init__(self, data: bytes) -> None:
        self._entries = _entries(data)
        sizes = {name: entry.size for name, entry in self._entries.items()}
        expect(may_hold(len(data), sizes), "entries that can be so small when deflated")

    @property
    def names(self) -> set[str]:
        """Names of all entries."""
        return set(self._entries)

    def size(self, name: str) -> int:
        """The declared size of an entry in bytes."""
        return self._entry(name).size

    def read(self, name: str) -> bytes:
        """The bytes of an entry."""
        return b"".join(_chunks(self._entry(name), name))

    def read_into(self, name: str, target: NDArray[np.uint8]) -> None:
        """Fill an array, which is as long as the entry, with the bytes of an entry."""
        begin = 0
        for chunk in _chunks(self._entry(name), name):
            target[begin : begin + len(chunk)] = np.frombuffer(chunk, np.uint8)
            begin += len(chunk)

    def _entry(self, name: str) -> _Entry:
        expect(name in self._entries, f"an entry {name}; this is another zip, or damaged")
        return self._entries[name]


def _entries(data: bytes) -> dict[str, _Entry]:
    """The entries by name, if directory and headers agree and the file has no other bytes."""
    expect(data[:2] == b"PK", "a treecdf model file; this is something else")
    expect(len(data) >= _END.size, "the end of a zip; the file is cut off")
    end = len(data) - _END.size
    mark, _, _, _, n_entries, directory_size, directory, n_comment = _END.unpack_from(data, end)
    expect(mark == b"PK\5\6" and n_comment == 0, "the end of a zip; the file is cut off or damaged")
    expect(n_entries <= _MOST_ENTRIES and directory_size <= _MOST_DIRECTORY, "a small zip directory")
    expect(directory + directory_size == end, "a zip directory in front of its end; the file is damaged")
    found: dict[str, _Entry] = {}
    listed, place = directory, 0
    for _ in range(n_entries):
        name, size_of_line, entry, place = _read_entry(data, listed, place)
        expect(name not in found, "every entry once")
        found[name] = entry
        listed += size_of_line
    expect(listed == end and place == directory, "entries one after the other; the file is damaged")
    return found


def _read_entry(data: bytes, listed: int, place: int) -> tuple[str, int, _Entry, int]:
    """Name, bytes of its line in the directory (at `listed`), the entry (at `place`), and where the next one begins."""
    expect(max(listed + _LISTED.size, place + _HEADER.size) <= len(data), "an entry; the file is cut off")
    line, header = _LISTED.unpack_from(data, listed), _HEADER.unpack_from(data, place)
    expect(line[0] == b"PK\1\2" and header[0] == b"PK\3\4", "an entry of a zip; the file is damaged")
    _, flags, method, _, _, _, packed_size, size, n_name = line[2:11]
    n_extra, n_comment, _, _, _, offset = line[11:]
    expect(offset == place, "entries one after the other; the file is damaged")
    begin = place + _HEADER.size
    name = data[begin : begin + n_name]
    is_same = header[1:10] == line[2:11] and data[listed + _LISTED.size : listed + _LISTED.size + n_name] == name
    expect(is_same, "a directory that says the same as the headers of its entries; the file is damaged")
    expect(flags & ~_ALLOWED_FLAGS == 0, "entries that are not encrypted")
    expect(method in (_STORED, _DEFLATED), "entries that are stored or deflated")
    expect(method == _DEFLATED or packed_size == size, "stored entries of the size that they say")
    begin += n_name + header[10]
    expect(begin + packed_size <= len(data), "an entry; the file is cut off")
    content = memoryview(data)[begin : begin + packed_size]
    size_of_line = _LISTED.size + n_name + n_extra + n_comment
    return name.decode("utf-8"), size_of_line, _Entry(content, method, size), begin + packed_size


def _chunks(entry: _Entry, name: str) -> Iterator[bytes | memoryview]:
    """The bytes of an entry in chunks; it is refused before more than the declared size would be in memory."""
    if entry.method == _STORED:
        yield entry.content
        return
    deflated, read, left = zlib.decompressobj(-zlib.MAX_WBITS), 0, entry.size
    while not deflated.eof:
        packed: bytes | memoryview = deflated.unconsumed_tail
        if not packed:
            packed = entry.content[read : read + _FED]
            read += len(packed)
        chunk = deflated.decompress(packed, min(left + 1, _CHUNK))
        left -= len(chunk)
        expect(left >= 0, f"{entry.size} bytes in {name}; there are more")
        expect(packed or chunk or deflated.eof, f"{entry.size} bytes in {name}; the file is cut off")
        yield chunk
    is_all = left == 0 and read == len(entry.content) and not deflated.unused_data
    expect(is_all, f"{entry.size} bytes in {name} and nothing behind them; the file is damaged")
