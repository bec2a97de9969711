"""Many machines give the same bytes as one, whatever dies; nodes that cannot are refused by name.

One cluster for all tests: a head that trains nothing and two nodes, one of which pretends to have two GPUs. It lives in
a network namespace with nothing but loopback; where that cannot be made, these tests fail.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import namespaces
import pytest
from test_schedule import kept

from dpmac import experiments
from dpmac.cli import main
from dpmac.config import BadInput
from dpmac.experiments import SCALES
from dpmac.results import records
from dpmac.runner import schedule

ADDRESS = f"127.0.0.1:{namespaces.PORT}"
LINE = ["reproduce", "nonprivate", "--scale", "smoke", "--skip-figures", "--json", "--checkpoint-seconds", "0"]
RAY = ["--engine", "ray", "--address", ADDRESS]
WANTED = experiments.populations(["nonprivate"], SCALES["smoke"], SCALES["smoke"].tasks, ["silent"])
CPU = [*RAY, "--gpus-per-job", "0", "--methods", "silent"]


class Machines(namespaces.Namespace):
    """A head and the nodes a and b, which are started again when they were killed."""

    def __init__(self, folder):
        super().__init__(folder)
        self.head = self.node("head", "--num-cpus=0", head=True)
        self.nodes = {"a": self.joined("a"), "b": self.joined("b")}

    def joined(self, name):
        return self.node(name, "--num-cpus=1", *(["--num-gpus=2"] if name == "a" else []))

    def trainer(self):
        """The name of the node that trains something now."""
        for name, process in self.nodes.items():
            for pid in namespaces.tree(process.pid):
                try:
                    if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::train"):
                        return name
                except OSError:
                    continue
        return None

    def lose(self, name):
        namespaces.kill(self.nodes[name])
        self.nodes[name] = self.joined(name)


@pytest.fixture(scope="module")
def machines():
    """In a folder of a short name: Ray's sockets have room for a hundred letters."""
    folder = Path(tempfile.mkdtemp(prefix="dpmac-"))
    try:
        found = Machines(folder)
    except (RuntimeError, OSError) as error:
        pytest.fail(str(error))
    yield found
    found.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """What one process trains, which also warms the cache of compiled programs."""
    out = tmp_path_factory.mktemp("local") / "out"
    assert main([*LINE, "--methods", "silent", "dpmac", "--out", str(out)]) == 0
    return kept(out)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """What one process trains of one population that is split for two nodes: one seed each."""
    out = tmp_path_factory.mktemp("apart") / "out"
    jobs = schedule.plan(out, WANTED, slots=2)
    assert [job.config.seeds for job in jobs] == [(0,), (1,)]
    list(schedule.work(out, jobs, schedule.Options(SCALES["smoke"].final_episodes)))
    return kept(out)


def said(process, seconds=300):
    """What a command printed at its end, which must be a good one."""
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == 0, error
    return json.loads(out)


def training(out, process):
    """Wait until a job has begun to train, and not yet ended."""
    while not list(out.glob("jobs/*/metrics.csv")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_two_nodes_give_the_same_bytes_as_one_process_and_see_a_gpu_each(machines, local, tmp_path):
    found = said(machines.dpmac(*LINE, *RAY, "--methods", "silent", "dpmac", "--out", tmp_path / "out"))
    assert found["trained_now"] == found["finished"] == 4
    assert kept(tmp_path / "out") == local
    runs = records.read(tmp_path / "out").runs
    assert {record.final["population"]["gpus"] for record in runs.values()} == {"0", "1"}
    assert list((tmp_path / "out/jobs").iterdir()) == []
    assert [path.name for path in (tmp_path / "out").glob(".*")] == []  # tokens and wishes to stop


def test_a_node_killed_while_it_trains_loses_nothing(machines, apart, tmp_path):
    process = machines.dpmac(*LINE, *CPU, "--out", tmp_path / "out")
    training(tmp_path / "out", process)
    name = machines.trainer()
    assert name is not None
    machines.lose(name)
    assert said(process)["finished"] == 2
    assert kept(tmp_path / "out") == apart


def test_a_killed_driver_and_the_same_command_again_lose_nothing(machines, apart, tmp_path):
    process = machines.dpmac(*LINE, *CPU, "--out", tmp_path / "out")
    training(tmp_path / "out", process)
    namespaces.kill(process)
    assert said(machines.dpmac(*LINE, *CPU, "--out", tmp_path / "out"))["finished"] == 2
    assert kept(tmp_path / "out") == apart


def test_a_wrong_token_is_refused(machines, tmp_path):
    process = machines.dpmac(*LINE, *CPU, "--out", tmp_path / "out", RAY_AUTH_TOKEN="0" * 64)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2, error
    assert f"no Ray cluster can be used at {ADDRESS}" in error
    assert not (tmp_path / "out/jobs").exists()


def test_a_node_that_does_not_see_the_folder_is_refused_by_name(machines, tmp_path):
    """It has something else mounted in its place."""
    elsewhere = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {tmp_path} && exec "$@"', "sh")
    blind = machines.node("blind", "--num-cpus=1", before=elsewhere)
    process = machines.dpmac(*LINE, *CPU, "--out", tmp_path / "out")
    _, error = process.communicate(timeout=120)
    namespaces.kill(blind)
    assert process.returncode == 2, error
    assert "node blind (" in error
    assert f"does not see {tmp_path / 'out'}" in error
    assert not (tmp_path / "out/jobs").exists()


STOPPED = """
import sys
from pathlib import Path
from dpmac import experiments
from dpmac.runner import cluster, schedule

out = Path(sys.argv[1])
scale = experiments.SCALES["smoke"]
wanted = experiments.populations(["nonprivate"], scale, scale.tasks, ["silent"])
cluster.GRACE = 5.0
found = cluster.connect(out, cluster.Asked(sys.argv[2], gpus_per_job=0, patience=3.0))
jobs = schedule.plan(out, wanted, found.slots)
print(len(list(found.work(out, jobs, schedule.Options(scale.final_episodes, checkpoint_seconds=0)))))
"""


@pytest.mark.large
def test_a_stopped_node_is_replaced_and_does_no_harm_when_it_wakes(machines, apart, tmp_path):
    """It holds the job's folder all the while."""
    out = tmp_path / "out"
    out.mkdir()
    process = machines.start(sys.executable, "-c", STOPPED, out, ADDRESS, log=None)
    training(out, process)
    name = machines.trainer()
    stopped = namespaces.tree(machines.nodes[name].pid)
    namespaces.send(stopped, signal.SIGSTOP)
    assert kept(out) != apart
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert kept(out) == apart
    namespaces.send(stopped, signal.SIGCONT)
    time.sleep(5)
    assert kept(out) == apart
    machines.lose(name)


@pytest.mark.large
def test_all_figures_have_the_same_bytes(machines, tmp_path):
    line = ["reproduce", "all", "--scale", "smoke", "--skip-figures", "--json"]
    assert main([*line, "--out", str(tmp_path / "local")]) == 0
    assert said(machines.dpmac(*line, *RAY, "--gpus-per-job", "0", "--out", tmp_path / "ray"))["finished"] > 20
    assert kept(tmp_path / "ray") == kept(tmp_path / "local")


@pytest.mark.large
def test_fifty_kills_at_random_times_lose_nothing_and_train_nothing_twice(
    machines, local, apart, tmp_path, record_property
):
    """Of nodes and of drivers; whenever one folder is done, another is begun. A driver that finds one node alone trains
    both seeds side by side."""
    together = {name: bits for name, bits in local.items() if "-silent-" in name}
    draws, folders, kills = random.Random(0), 0, 0
    while kills < 50:
        out, process, before = tmp_path / f"out-{folders}", None, {}
        while True:
            process = process or machines.dpmac(*LINE, *CPU, "--out", out)
            time.sleep(draws.uniform(0.0, 15.0))
            if process.poll() is not None:
                break
            assert kept(out).items() >= before.items()
            before, kills = kept(out), kills + 1
            if draws.random() < 0.5:
                namespaces.kill(process)
                process = None
            else:
                machines.lose(draws.choice(["a", "b"]))
        assert said(process)["finished"] == 2
        assert kept(out) in (apart, together)
        folders += 1
    record_property(
        "counted", f"nodes and drivers of a cluster killed {kills} times, {folders} folders with the same bits"
    )


def spent(machines, process):
    """Seconds of processors that everything in the namespace uses until a command ends."""
    before = namespaces.processor_seconds(machines.processes())
    seen = dict(before)
    while process.poll() is None:
        seen |= namespaces.processor_seconds(machines.processes())
        time.sleep(0.2)
    return sum(seen.values()) - sum(before.values())


@pytest.mark.large
def test_ray_costs_little_beyond_its_start(machines, tmp_path, record_property):
    """Ten small populations, one at a time with either engine, from the first evaluation to the end.

    A job of Ray starts its program, from the cache, before it trains; one process does that beside training. So of the
    clock, training and the starts of nine programs are taken off, and what is left is scoring, scheduling and waiting.
    """
    line = ["sweep", "probe-listen", "--scale", "smoke", "--seeds", "1", "--steps", "100000", "--json"]
    line += ["--grid", f"hidden={','.join(map(str, range(8, 18)))}"]
    namespaces.kill(machines.nodes.pop("b"))
    took, cost = {}, {}
    for name, engine in {"warm": [], "local": [], "ray": [*RAY, "--gpus-per-job", "0"]}.items():
        process = machines.dpmac(
            *line, *engine, "--out", tmp_path / name, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0"
        )
        training(tmp_path / name, process)
        begun = time.monotonic()
        cost[name], took[name] = spent(machines, process), time.monotonic() - begun
        assert len(said(process)["rows"]) == 10
    machines.nodes["b"] = machines.joined("b")
    trained, started = (
        {
            name: sum(run.final["population"][what] for run in records.read(tmp_path / name).runs.values())
            for name in took
        }
        for what in ("train_seconds", "compile_seconds")
    )
    rest = {"local": took["local"] - trained["local"], "ray": took["ray"] - trained["ray"] - 0.9 * started["ray"]}
    longer, dearer = (rest["ray"] - rest["local"]) / trained["local"], cost["ray"] / cost["local"] - 1
    record_property(
        "counted",
        f"ten populations, one at a time: {took['local']:.0f} s in one process, {trained['local']:.0f} of training; "
        f"{took['ray']:.0f} s on a node of this machine, {trained['ray']:.0f} of them training and "
        f"{0.9 * started['ray']:.0f} starts of programs; the rest is {100 * longer:.0f} % of training more; seconds of "
        f"processors {cost['local']:.0f} and {cost['ray']:.0f}, {100 * dearer:.0f} % more",
    )
    assert dearer < 0.1
    busy = os.getloadavg()[0] > (os.cpu_count() or 1) + 1  # with other work, too
    assert longer < 0.1 or busy


# Without a cluster ----------------------------------------------------------------------------------------------------


def test_without_a_namespace_of_its_own_no_ray_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(namespaces.Namespace, "place", staticmethod(lambda pid: "net:[1]"))
    with pytest.raises(RuntimeError, match="only in a network namespace of its own"):
        namespaces.Namespace(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token": ""}, "node b .*does not see"),
        ({"authentication": "disabled"}, "node b .*takes tasks from anybody"),
        ({"versions": {"jax": "0.0.1"}}, "node b has dpmac None instead of .*jax 0.0.1 instead of"),
    ],
)
def test_nodes_that_differ_are_refused_by_name(change, says, tmp_path):
    from dpmac.runner import cluster

    good = cluster.Report("token", cluster.versions(), "token")
    cluster.refuse({"a": good}, "token", tmp_path, insecure=False)
    with pytest.raises(BadInput, match=says):
        cluster.refuse({"a": good, "b": good._replace(**change)}, "token", tmp_path, insecure=False)
    with pytest.raises(BadInput, match="node c does not answer: it died"):
        cluster.refuse({"c": "it died"}, "token", tmp_path, insecure=True)


def test_a_cluster_without_tokens_is_used_where_that_is_wanted(tmp_path):
    from dpmac.runner import cluster

    cluster.refuse({"a": cluster.Report("token", cluster.versions(), "disabled")}, "token", tmp_path, insecure=True)


def test_a_job_is_taken_from_a_node_that_stays_dead(tmp_path, monkeypatch):
    from dpmac.runner import cluster

    job = schedule.Job(tmp_path, WANTED[next(iter(WANTED))], {})
    assert cluster.where(job) == ""
    (tmp_path / cluster.NODE).write_text("b")
    nodes = [{"NodeID": "a", "Alive": True}, {"NodeID": "b", "Alive": False}]
    monkeypatch.setattr(cluster.ray, "nodes", lambda: nodes)
    dead = {}
    assert cluster.where(job) not in cluster.gone(dead)  # Ray has time to do it
    monkeypatch.setattr(cluster, "GRACE", -1.0)
    assert cluster.where(job) in cluster.gone(dead)


def test_more_devices_than_populations_split_the_seeds():
    scale = SCALES["paper"]
    wanted = [*experiments.populations(["nonprivate"], scale, ("ccn",), ("dpmac", "silent")).items()]
    parts = schedule.split(wanted, 5)
    assert len(parts) == 5
    assert sorted((name, seed) for name, config in parts for seed in config.seeds) == sorted(
        (name, seed) for name, config in wanted for seed in config.seeds
    )
    assert schedule.split(wanted, 1) == wanted
    assert len(schedule.split(wanted, 99)) == 10


def test_jobs_take_whole_nodes_or_gpus():
    from dpmac.runner.cluster import Asked, Cluster

    plain = Cluster(Asked(), {"head": {}, "a": {"CPU": 4.0}, "b": {"CPU": 8.0}})
    assert (plain.gpus, plain.cpus, plain.slots) == (0, 4, 3)
    gpus = Cluster(Asked(), {"a": {"CPU": 16.0, "GPU": 4.0}, "b": {"CPU": 8.0, "GPU": 1.0}})
    assert (gpus.gpus, gpus.cpus, gpus.slots) == (1, 0, 5)
    assert gpus.resources["max_calls"] == 1
    assert Cluster(Asked(gpus_per_job=2), gpus.nodes).slots == 2
