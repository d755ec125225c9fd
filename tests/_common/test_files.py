import os
import socket
import stat
import subprocess
import sys

import pytest

from treecdf._common.files import UNFINISHED, replace_file

NEW = b"the new content"
posix = pytest.mark.skipif(os.name != "posix", reason="modes, links and FIFOs are POSIX's")


def write_new(file):
    file.write(NEW)


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_writes_a_new_file(tmp_path):
    replace_file(tmp_path / "new", write_new)
    assert (tmp_path / "new").read_bytes() == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@posix
def test_a_new_file_has_the_mode_of_the_umask(tmp_path, umask):
    replace_file(tmp_path / "new", write_new)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o777])
def test_an_old_file_keeps_its_mode(tmp_path, mode, umask):
    path = tmp_path / "old"
    path.write_bytes(b"old")
    path.chmod(mode)
    seen = []

    def write(file):
        write_new(file)
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~mode)

    replace_file(path, write)
    assert path.read_bytes() == NEW
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert seen == [0]  # nobody could read the new content who could not read the old


@posix
def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    file, link, second = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "second"
    file.write_bytes(b"old")
    link.symlink_to("there/file")
    second.symlink_to(link)
    replace_file(second, write_new)
    assert file.read_bytes() == NEW
    assert link.is_symlink()
    assert second.is_symlink()
    assert not file.is_symlink()
    file.unlink()
    replace_file(link, write_new)  # a link to a file that is to come
    assert link.is_symlink()
    assert file.read_bytes() == NEW


@posix
def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match="link"):
        replace_file(tmp_path / "link", write_new)
    assert (tmp_path / "link").is_symlink()


@posix
def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # names of sockets are short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        cases = {"fifo": "a FIFO", "socket": "a socket", "directory": "the directory"}
        for name, kind in cases.items():
            before = (tmp_path / name).stat()
            with pytest.raises(OSError, match=kind) as caught:
                replace_file(tmp_path / name, write_new)
            assert str(tmp_path / name) in str(caught.value)
            assert (tmp_path / name).stat() == before
    with pytest.raises(OSError, match="/dev/null, which is a device"):
        replace_file("/dev/null", write_new)
    assert {path.name for path in tmp_path.iterdir()} == set(cases)


@posix
def test_a_pipe_behind_a_link_is_refused():
    code = "from treecdf._common.files import replace_file; replace_file('/dev/stdout', lambda file: None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode
    assert "/dev/stdout, which is a FIFO" in done.stderr


def test_names_of_the_longest_length_work(tmp_path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
    path = tmp_path / ("é" * ((longest - 5) // 2) + ".tcdf")
    replace_file(path, write_new)
    replace_file(path, write_new)
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "old"
    path.write_bytes(b"old")

    def fail(file):
        file.write(NEW)
        file.flush()
        raise error

    with pytest.raises(type(error)) as caught:
        replace_file(path, fail)
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    if isinstance(error, OSError):
        assert caught.value.errno == 28
        assert caught.value.filename == str(path)


def test_the_old_file_is_whole_until_the_new_one_is(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"old")

    def write(file):
        file.write(NEW)
        file.flush()
        assert path.read_bytes() == b"old"
        (beside,) = {*tmp_path.iterdir()} - {path}
        assert beside.name.startswith(UNFINISHED)

    replace_file(path, write)
    assert path.read_bytes() == NEW


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Expected a file in a directory that exists; got .*nowhere"):
        replace_file(tmp_path / "nowhere" / "new", write_new)


@posix
def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path):
    code = (
        "import resource, signal, sys; from treecdf._common.files import replace_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "replace_file(sys.argv[1], lambda file: file.write(bytes(5000)))"
    )
    path = tmp_path / "model"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stderr.strip().splitlines()[-1] == f"OSError: [Errno 27] File too large: '{path}'"
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
