"""A Ray cluster in a network namespace that has nothing but loopback: Ray listens on every interface that it finds."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PORT = 6399
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "10",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_worker_niceness": "0",
}
"""A node that does not answer is taken for dead after seconds, not a minute; workers are as nice as everybody else."""
HOLDER = """
import fcntl, os, socket, struct, sys, time
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x8 | 0x40))  # SIOCSIFFLAGS: up, loopback, running
names = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
print(" ".join(names), flush=True)
sys.stdin.read()
"""


class Namespace:
    """A network namespace that has only `lo`, held by a process; all that runs in it is ours."""

    def __init__(self, folder: Path):
        self.folder = folder
        call = ["unshare", "--net", sys.executable, "-c", HOLDER]
        self.holder = subprocess.Popen(
            call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.holder.stdout is not None
        interfaces = self.holder.stdout.readline().split()
        if interfaces != ["lo"] or self.place(self.holder.pid) == self.place(os.getpid()):
            self.holder.kill()
            raise RuntimeError(
                f"Ray is tested only in a network namespace of its own with nothing but lo, not {interfaces}; "
                f"run the tests as root: {self.holder.communicate()[1].strip()}"
            )
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(folder),
            "RAY_raylet_start_wait_time_s": "120",  # on a busy machine a node takes longer than Ray's 30 s to join
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9",  # JAX does not mend what a killed process half wrote
            **QUICK,
        }

    @staticmethod
    def place(pid: int) -> str:
        return os.readlink(f"/proc/{pid}/ns/net")

    def processes(self) -> list[int]:
        """All that run in it, without its holder."""
        ours, found = self.place(self.holder.pid), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.place(int(entry.name)) == ours and int(entry.name) != self.holder.pid:
                    found.append(int(entry.name))
            except OSError:  # it has just ended
                continue
        return found

    def start(self, *call: object, log: Path | None = None, **variables: str | None) -> subprocess.Popen:
        """A process in it; variables that are None are taken out of its environment."""
        changed = {**self.environment, **variables}
        environment = {name: value for name, value in changed.items() if value is not None}
        inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *map(str, call)]
        given: dict[str, Any] = {"text": True, "env": environment, "start_new_session": True}
        if log is None:
            return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        with open(log, "w") as file:
            return subprocess.Popen(inside, stdout=file, stderr=file, **given)

    def node(
        self, name: str, *options: object, head: bool = False, before: tuple[str, ...] = (), **variables: str | None
    ):
        """Start a node and wait until it has joined."""
        ray = Path(sys.executable).with_name("ray")
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"] if head else [f"--address=127.0.0.1:{PORT}"]
        common = ["--node-ip-address=127.0.0.1", f"--node-name={name}", "--object-store-memory=80000000", "--block"]
        log = self.folder / f"{name}.log"
        process = self.start(*before, ray, "start", *where, *common, *options, log=log, **variables)
        for _ in range(600):
            if "Ray runtime started" in log.read_text():
                return process
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        raise AssertionError(f"{name} did not start: {log.read_text()}")

    def dpmac(self, *arguments: object, **variables: str | None) -> subprocess.Popen:
        return self.start(sys.executable, "-m", "dpmac", *arguments, log=None, **variables)

    def close(self) -> None:
        for _ in range(20):
            left = self.processes()
            send(left, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        self.holder.kill()
        self.holder.communicate()


def tree(pid: int) -> list[int]:
    """A process and all that it has started."""
    parents: Mapping[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(int(entry.parent.name))  # type: ignore[attr-defined]

    def below(found: int) -> Iterator[int]:
        yield found
        for child in parents.get(found, []):
            yield from below(child)

    return list(below(pid))


def processor_seconds(pids: list[int]) -> dict[int, float]:
    """What each of these processes that still runs has used of processors."""
    found = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill(process: subprocess.Popen) -> None:
    """A node or a command with everything that it has started, at once."""
    send(tree(process.pid), signal.SIGKILL)
    process.wait()
