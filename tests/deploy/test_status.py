"""What people and collectors see: a table, metrics that a parser understands, and a page that loads nothing else."""

import json
import re
import threading
import time
import urllib.error
import urllib.request

import pytest

from dpmac.cli import main
from dpmac.config import BadInput
from dpmac.deploy import status

PEER = {"heard": 40, "missed": 2, "late": 1, "early": 0, "doubled": 0, "malformed": 3, "latency_ms": 1.234}
STATUS = {
    "agent": 0,
    "written": 0.0,
    "ended": "",
    "episode": 12,
    "step": 3,
    "horizon": 25,
    "episodes_played": 7,
    "frames_sent": 44,
    "messages_sent": 14,
    "messages_not_ready": 0,
    "epsilon_spent": 2.5,
    "epsilon_limit": "inf",
    "releases": 7,
    "silent": False,
    "silent_because": "",
    "observations_missed": 1,
    "observations_refused": 0,
    "clock_jumps": 0,
    "peers": {"1": PEER, "2": PEER},
}


@pytest.fixture
def bundles(tmp_path):
    """One agent at work, one that is silent and stands still, one that never ran."""
    folders = [tmp_path / f"bundle-{agent}" for agent in range(3)]
    for folder in folders:
        folder.mkdir()
        (folder / "agent.json").write_text("{}")
    (folders[0] / "status.json").write_text(json.dumps(STATUS | {"written": time.time()}))
    still = {
        "agent": 1,
        "written": time.time() - 60,
        "silent": True,
        "silent_because": "no room",
        "epsilon_spent": None,
    }
    (folders[1] / "status.json").write_text(json.dumps(STATUS | still))
    return folders


def test_a_table_says_who_is_at_work_who_is_silent_and_who_is_missed(bundles, capsys):
    assert main(["deploy", "status", *map(str, bundles)]) == 0
    out = capsys.readouterr().out
    assert "agent 0  at work  episode 12 step 3  messages 14 of 44 frames  epsilon 2.5 of inf" in out
    assert "agent 1  not answering" in out
    assert "  silent: no room" in out
    assert "bundle-2: never ran" in out
    assert "from 1:  heard 40  missed 2  late 1  early 0  doubled 0  malformed 3  latency 1.2 ms" in out
    assert main(["deploy", "status", *map(str, bundles), "--json"]) == 0
    assert [one["alive"] for one in json.loads(capsys.readouterr().out)] == [True, False, False]
    assert main(["deploy", "status", str(bundles[0] / "nothing")]) == 2


def test_metrics_are_in_the_text_format(bundles, capsys):
    assert main(["deploy", "status", *map(str, bundles), "--metrics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    label = r'\w+="\d+"'
    sample = re.compile(rf"dpmac_\w+\{{{label}(,{label})?\}} ([0-9.e+-]+|\+Inf)")
    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE"))
    for line in lines:
        assert line.startswith(("# HELP dpmac_", "# TYPE dpmac_")) or sample.fullmatch(line), line
    named = {line.split("{")[0] for line in lines if not line.startswith("#")}
    assert named == set(kinds)
    assert all((kinds[name] == "counter") == name.endswith("_total") for name in named)
    assert 'dpmac_missed_total{agent="0",peer="2"} 2.0' in lines
    assert 'dpmac_epsilon_limit{agent="0"} +Inf' in lines
    assert 'dpmac_alive{agent="1"} 0.0' in lines


def test_the_page_and_its_data_are_served(bundles):
    with status.server(bundles, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        page = urllib.request.urlopen(f"{base}/").read().decode()
        assert "Agents at work" in page
        assert not re.findall(r"(?:src|href)=|https?://", page)
        assert len(json.load(urllib.request.urlopen(f"{base}/status.json"))) == 3
        assert b"dpmac_episode" in urllib.request.urlopen(f"{base}/metrics").read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/../agent.json")
        server.shutdown()


def test_a_status_is_renewed_and_written_once_more_at_the_end(tmp_path):
    stop, path, calls = threading.Event(), tmp_path / "status.json", []
    writer = threading.Thread(target=status.keep, args=(path, lambda: {"n": calls.append(1) or len(calls)}, stop, 0.01))
    writer.start()
    time.sleep(0.1)
    stop.set()
    writer.join()
    assert json.loads(path.read_text())["n"] == len(calls) >= 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("address", ["8900", "127.0.0.1:", ":8900", "127.0.0.1:99999", "127.0.0.1:http"])
def test_an_address_has_a_host_and_a_port(bundles, address, capsys):
    assert main(["deploy", "status", str(bundles[0]), "--serve", address]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_a_bundle_is_a_folder_that_says_so(tmp_path):
    with pytest.raises(BadInput, match="is no bundle"):
        status.read([tmp_path])
