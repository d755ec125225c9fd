"""Zips that no honest writer writes: bombs, and directories that lie about their entries."""

from __future__ import annotations

import bz2
import functools
import io
import lzma
import struct
import zipfile
import zlib

import numpy as np

BOMB = 30_000_000  # bytes that a bomb unpacks to


def entries_of(data):
    """Entries of a file as keyword arguments of `forge`, in their order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [{"name": name.encode(), "content": archive.read(name)} for name in archive.namelist()]


def forge(entries):
    """A zip of entries, each with whatever it says about itself in its header and in the directory.

    name, content: what it is. method, packed: how it is packed. size: what it says it unpacks to. at: where the
    directory says it is. header, listed: further fields, by their names below, in front of it and in the directory.
    """
    body, directory = b"", b""
    for entry in entries:
        content, method = entry["content"], entry.get("method", zipfile.ZIP_DEFLATED)
        packed = entry.get("packed", deflate(content) if method == zipfile.ZIP_DEFLATED else content)
        fields = {"version": 20, "flags": 0, "method": method, "time": 0, "date": 33, "crc": zlib.crc32(content)}
        fields |= {"packed_size": len(packed), "size": entry.get("size", len(content)), "n_name": len(entry["name"])}
        header, listed = fields | entry.get("header", {}), fields | entry.get("listed", {})
        at = entry.get("at", len(body))
        directory += struct.pack("<4sH5H3L5H2L", b"PK\1\2", 20, *listed.values(), 0, 0, 0, 0, 0, at) + entry["name"]
        body += struct.pack("<4s5H3L2H", b"PK\3\4", *header.values(), 0) + entry["name"] + packed
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + end


def deflate(content):
    """Deflated, without a header."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return squeeze.compress(content) + squeeze.flush()


def _lzma(content):
    """As zips have it: version, size of the properties, properties, stream."""
    chosen = {"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16}
    properties = lzma._encode_filter_properties(chosen)
    stream = lzma.compress(content, lzma.FORMAT_RAW, filters=[chosen])
    return struct.pack("<BBH", 9, 4, len(properties)) + properties + stream


PACKERS = {zipfile.ZIP_BZIP2: bz2.compress, zipfile.ZIP_LZMA: _lzma, zipfile.ZIP_DEFLATED: deflate}


@functools.cache
def packed_bomb(method):
    """BOMB zeros, packed by one of the methods."""
    return PACKERS[method](bytes(BOMB))


def bomb(data, rng):
    """An entry that unpacks to far more than it says, or says so."""
    entries = entries_of(data)
    entry, method = entries[rng.integers(len(entries))], list(PACKERS)[rng.integers(len(PACKERS))]
    size = int(rng.choice([0, 64, len(entry["content"]), len(entry["content"]) + 1, BOMB]))
    entry |= {"method": method, "packed": packed_bomb(method), "size": size}
    return forge(entries)


def other_method(data, rng):
    """An honest entry, packed with what zips know but we do not write."""
    entries = entries_of(data)
    entry = entries[rng.integers(len(entries))]
    method = (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 1, 6, 9, 93, 99)[rng.integers(7)]
    entry |= {"method": method, "packed": PACKERS.get(method, bytes)(entry["content"])}
    return forge(entries)


def overlap(data, rng):
    """Two entries of the directory that are one place of the file, or places within others."""
    entries = entries_of(data)
    a, b = rng.choice(len(entries), 2, replace=False)
    places = np.cumsum([0, *(30 + len(e["name"]) + len(deflate(e["content"])) for e in entries)])
    entries[a]["at"] = int(places[b] if rng.random() < 0.5 else (places[a] + rng.integers(1, places[-1])) % places[-1])
    return forge(entries)


def wrong_header(data, rng):
    """A header in front of an entry that says something else than the directory."""
    entries = entries_of(data)
    where = ("header", "listed")[rng.integers(2)]
    field = ("flags", "method", "packed_size", "size", "n_name", "crc")[rng.integers(6)]
    values = {"flags": (1, 8, 32, 64, 8192, 65535), "method": (0, 8, 12, 14)}
    chosen = rng.choice(values.get(field, (0, 1, 64, 60_000, 2**31 - 1) if field != "n_name" else (0, 1, 60_000)))
    entries[rng.integers(len(entries))][where] = {field: int(chosen)}
    return forge(entries)


def encrypted(data, rng):
    """Entries that say they are encrypted or patched, everywhere alike."""
    flags = {"flags": int(rng.choice([1, 1 | 64, 32, 8, 8192]))}
    return forge([entry | {"header": flags, "listed": flags} for entry in entries_of(data)])


def stored(data, rng):
    """Nothing is wrong with it."""
    return forge([entry | {"method": int(rng.choice([0, 8]))} for entry in entries_of(data)])


FORGERIES = (bomb, other_method, overlap, wrong_header, encrypted, stored)
