"""The zip around a model file: what is hostile is refused before it takes memory, and what is honest is read."""

import functools
import io
import zipfile
import zlib

import numpy as np
import pytest

from tests import fuzz_files
from tests.fuzz_files import memory_of_load, predictions
from tests.helpers import forged
from tests.helpers.forged import BOMB, deflate, entries_of, forge, packed_bomb
from treecdf import ModelFileError, load_model

MB = 1 << 20
METHODS = {"bz2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA, "deflate": zipfile.ZIP_DEFLATED}


@functools.cache
def fitted():
    return fuzz_files.fit("nodes")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "model.tcdf"
    fitted().save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.tcdf"


def refused(data, path, match):
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=match):
        load_model(path)


def changed(data, name, **how):
    """The same file with one entry that is packed, or says that it is packed, in another way."""
    return forge([entry | how if entry["name"] == name.encode() else entry for entry in entries_of(data)])


def test_a_forged_file_with_nothing_wrong_is_read(data, path):
    """So the refusals below are due to what is wrong."""
    for seed in range(4):
        path.write_bytes(forged.stored(data, np.random.default_rng(seed)))
        assert np.array_equal(predictions(load_model(path)), predictions(fitted()))


@pytest.mark.parametrize("name", ["model.json", "model.sha256", "float64.bin", "node.bin"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lie", ["nothing", "the size of the honest entry", "the truth"])
def test_bombs_take_no_memory(name, method, lie, data, path):
    size = next(len(entry["content"]) for entry in entries_of(data) if entry["name"] == name.encode())
    told = {"nothing": 0, "the size of the honest entry": size, "the truth": BOMB}[lie]
    bomb = changed(data, name, method=METHODS[method], packed=packed_bomb(METHODS[method]), size=told)
    refused(bomb, path, "so small when deflated|stored or deflated|there are more|numbers")
    assert memory_of_load(bomb, path) < 10 * len(data) + 2 * MB < BOMB


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 1, 9, 93])
def test_only_stored_and_deflated_entries_are_read(method, data, path):
    refused(changed(data, "node.bin", method=method), path, "entries that are stored or deflated")


def test_entries_say_their_size(data, path):
    content = next(entry["content"] for entry in entries_of(data) if entry["name"] == b"node.bin")
    size, whole = len(content), deflate(content)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for lie in (0, size - 56, size - 1, size + 1, size + 56):
            refused(changed(data, "node.bin", size=lie, method=method), path, "bytes in node.bin|numbers node|the size")
    refused(changed(data, "node.bin", packed=whole[:-8]), path, "the file is cut off")
    refused(changed(data, "node.bin", packed=whole + b"more"), path, "nothing behind")
    refused(changed(data, "node.bin", packed=b"\7" + whole), path, "it is damaged .*error")


@pytest.mark.parametrize("flags", [1, 65, 32, 8, 8192])
def test_encrypted_entries_are_refused(flags, data, path):
    said = {"flags": flags}
    refused(changed(data, "node.bin", header=said, listed=said), path, "entries that are not encrypted")


@pytest.mark.parametrize("field", ["version", "flags", "method", "packed_size", "size", "n_name", "crc"])
@pytest.mark.parametrize("where", ["header", "listed"])
def test_headers_and_directory_say_the_same(field, where, data, path):
    refused(changed(data, "node.bin", **{where: {field: 5}}), path, "cannot be loaded: expected")


def test_entries_do_not_overlap(data, path):
    """Many entries of one place would be a small file and much memory."""
    entries = entries_of(data)
    for shared in range(len(entries)):
        others = [entry | {"at": 0} if k == shared else entry for k, entry in enumerate(entries)]
        if shared:
            refused(forge(others), path, "one after the other|says the same")


@pytest.mark.parametrize("where", ["before", "between", "before the directory", "behind"])
def test_there_is_nothing_besides_the_entries(where, data, path):
    hidden = b"hidden bytes"
    if where == "before":
        refused(hidden + data, path, "something else")
        refused(b"PK" + data, path, "cannot be loaded")
    elif where == "behind":
        refused(data + hidden, path, "the end of a zip")
    else:
        at = data.index(b"PK\3\4", 10) if where == "between" else data.index(b"PK\1\2")
        refused(data[:at] + hidden + data[at:], path, "the file is damaged")


def test_a_zip64_is_refused(data, path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for entry in entries_of(data):
            with archive.open(entry["name"].decode(), "w", force_zip64=True) as part:
                part.write(entry["content"])
    refused(file.getvalue(), path, "cannot be loaded: expected")


def test_large_entries_are_unpacked_in_chunks(data, path, monkeypatch):
    """Chunks of every size give the same bytes, also where a chunk ends with the input but not with the output."""
    from treecdf.persist.archive import Archive

    content = np.random.default_rng(0).integers(0, 3, 5000).astype(np.uint8).tobytes() + bytes(5000)
    for chunk, fed in ((1, 1), (7, 64), (258, 3), (4096, 1 << 16)):
        monkeypatch.setattr("treecdf.persist.archive._CHUNK", chunk)
        monkeypatch.setattr("treecdf.persist.archive._FED", fed)
        archive = Archive(forge([{"name": b"a", "content": content}]))
        assert archive.read("a") == content
        target = np.empty(len(content), np.uint8)
        archive.read_into("a", target)
        assert target.tobytes() == content
    assert zlib.decompress(deflate(content), -15) == content


def test_mutated_zips_do_no_harm(data, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_files, "DAMAGE", fuzz_files.FORGERIES)
    monkeypatch.setattr(fuzz_files, "EDITS", (forged.bomb,))
    outcomes, most, _ = fuzz_files.run({"nodes": (data, predictions(fitted()))}, 150, 0, tmp_path)
    assert set(outcomes) - {("same", "wrong_header")} == {  # what is said instead may happen to be the truth
        ("same", "stored"),
        *(("refused", forgery.__name__) for forgery in fuzz_files.FORGERIES if forgery is not forged.stored),
    }
    assert most < 1
