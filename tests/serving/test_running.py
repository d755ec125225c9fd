"""The command as a process of its own: it starts, answers under load, and stops without losing anything."""

import json
import signal
import socket
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serve import load, served
from tests.serving.test_app import ROWS
from treecdf import CompositionalFlow
from treecdf.cli.main import main
from treecdf.serving.running import listen


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("served") / "m.tcdf"
    model.save(file)
    return file


def test_a_server_that_is_stopped_under_load_loses_nothing(path):
    quick = ("/intervals", json.dumps({"rows": ROWS[:1]}).encode())
    slow = ("/samples", json.dumps({"rows": ROWS * 100, "draws": 1000}).encode())
    with served(path, "--notice", "3") as (process, port):
        seen, threads = load(port, [quick, quick, slow], seconds=120, n_clients=4)
        while sum(len(own.seconds) for own in seen) < 8:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert process.wait(60) == 0
    assert [own.lost for own in seen] == [0] * 4
    assert all(list(own.statuses) == [200] for own in seen)


def test_the_second_signal_ends_at_once(path):
    with served(path, "--notice", "600") as (process, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_it_listens_on_this_machine_only_and_answers(path):
    with served(path) as (_, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/m") as response:
            assert json.load(response)["platform"] == "treecdf"
        listeners = Path("/proc/net/tcp")
        if listeners.exists():
            own = [line.split()[1] for line in listeners.read_text().splitlines()[1:]]
            assert next(address for address in own if address.endswith(f":{port:04X}")).startswith("0100007F")


def test_an_address_that_is_taken_is_told(path, capsys):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(path), "--port", str(port)]) == 1
    assert f"cannot listen at 127.0.0.1, port {port}" in capsys.readouterr().err


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 8000), ("127.0.0.1", 70_000)])
def test_impossible_addresses_are_told(host, port):
    with pytest.raises(ValueError, match="cannot listen"):
        listen(host, port)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_addresses_may_be_of_the_sixth_version():
    try:
        with listen("::1", 0) as listening:
            assert listening.family == socket.AF_INET6
    except ValueError:
        pytest.skip("no IPv6 address here")


def test_compositions_are_refused_at_the_start(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1)), rng.dirichlet([2, 3, 4], size=40)
    CompositionalFlow(random_state=0).fit(x, y).save(tmp_path / "c.tcdf")
    assert main(["serve", str(tmp_path / "c.tcdf")]) == 1
    assert "holds a CompositionalFlow, and only a TreeFlowRegressor can be served" in capsys.readouterr().err


def test_the_extra_is_asked_for(path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["serve", str(path)]) == 1
    assert "pip install 'treecdf[serve]'" in capsys.readouterr().err
