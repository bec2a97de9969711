"""The scheduler's jobs in several processes of this machine, which share its devices.

One population does not keep a large GPU busy: its kernels are many and small. Several populations do where the kernels
of different processes run at the same time, which is what NVIDIA's MPS is for.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax

from dpmac.runner import crew
from dpmac.runner.schedule import Job, Options

MEMORY = 0.9
"""Share of a GPU's memory that all processes have together."""


class Processes(crew.Crew):
    """So many processes, started when there is work for them. One that dies ends the work; the same command goes on."""

    def __init__(self, count: int):
        self.count = count
        self.stack = contextlib.ExitStack()
        variables = {
            "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"],
            "XLA_PYTHON_CLIENT_MEM_FRACTION": os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY / count:.3f}"),
        }
        self.stack.enter_context(environment(variables))
        spawn = multiprocessing.get_context("spawn")
        self.pool = self.stack.enter_context(ProcessPoolExecutor(count, mp_context=spawn, initializer=settle))

    @property
    def slots(self) -> int:
        return self.count

    @property
    def facts(self) -> crew.Facts:
        return {"processes": self.count}

    def begin(self, job: Job, out: Path, options: Options, stop: Path) -> Future[crew.Facts | None]:
        return self.pool.submit(crew.train, job, out, options, stop)

    def ended(self, handles: list[Any], seconds: float, everything: bool = False) -> list[Any]:
        return list(wait(handles, seconds, ALL_COMPLETED if everything else FIRST_COMPLETED).done)

    def outcome(self, handle: Future[crew.Facts | None]) -> crew.Facts | None:
        return handle.result()

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.stack.close()


def settle() -> None:
    """In a new process: Ctrl-C is the driver's, and a driver that dies takes this process along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=follow_driver, daemon=True).start()


def follow_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


@contextlib.contextmanager
def environment(variables: dict[str, str | None]) -> Iterator[None]:
    """These variables for all processes that are started in the meantime; None: unset."""
    before = {name: os.environ.get(name) for name in variables}
    put(variables)
    try:
        yield
    finally:
        put(before)


def put(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
