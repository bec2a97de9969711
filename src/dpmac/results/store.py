"""A run's folder: written so that a crash at any moment leaves the last complete state.

config.json      what the run is
privacy.json     what it claims, and what is true
metrics.csv      long: step, budget, seed, name, value
checkpoints/     weights and training state
reference.json   returns of a random and of a scripted policy, so that figures need no task
"""

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dpmac.config import BadInput, RunConfig, dumps, loads, require, run_config

ASIDE = ".*.aside"
"""Files that `write_aside` has not renamed yet."""
METRICS_HEADER = ("step", "budget", "seed", "name", "value")


class Metric(NamedTuple):
    """One number of one run at one step."""

    step: int
    budget: str
    seed: int
    name: str
    value: float


def write_aside(path: Path, data: bytes) -> None:
    """Replace a file as a whole: write beside it, sync, rename, sync the folder."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.aside")
    try:
        with named(path), open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Failures to write name the file, which those of a full disk do not do by themselves."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file as a whole."""
    write_aside(path, (dumps(value, indent=2) + "\n").encode())


def read_json(path: Path, of: str = "a run") -> Any:
    """The data of a JSON file of such a folder; one that is missing or damaged is bad input."""
    try:
        return loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{path} does not exist; is {path.parent} the folder of {of}?") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}") from None


def digest(config: Any) -> str:
    """A short name for a configuration."""
    return hashlib.blake2b(dumps(config).encode(), digest_size=16).hexdigest()


def mark(folder: Path) -> str:
    """The digest of a run's configuration as it is written, whichever version wrote it; checkpoints carry it."""
    return digest(read_json(folder / "config.json"))


def create(folder: Path, config: RunConfig, privacy: Any, reference: Any) -> None:
    """Start a run's folder; one that already holds a run is refused."""
    with locked(folder):
        there = (folder / "config.json").exists()
        require(not there, f"{folder} already holds a run; resume it, or choose another --out")
        (folder / "checkpoints").mkdir(exist_ok=True)
        write_json(folder / "privacy.json", privacy)
        write_json(folder / "reference.json", reference)
        write_json(folder / "config.json", config)  # last: a folder with a configuration is a run


def load_config(folder: Path) -> RunConfig:
    """The configuration of a run."""
    path = folder / "config.json"
    data = read_json(path)
    try:
        return run_config(data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; it is damaged, or of another version of dpmac") from None


class Held(BadInput):
    """Another process holds a folder."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder of a run or of results; a second process is refused. Needs a POSIX system."""
    try:
        import fcntl
    except ImportError:
        raise BadInput("folders are locked with fcntl, which Windows does not have; use dpmac in WSL") from None
    require(not folder.exists() or folder.is_dir(), f"{folder} is not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(f"another process is at work on {folder}") from None
        except OSError as error:
            raise BadInput(f"{folder} cannot be locked: {error.strerror}; choose a file system with locks") from None
        for left in (*folder.glob(ASIDE), *folder.glob(f"checkpoints/{ASIDE}")):  # by a process that was killed
            left.unlink(missing_ok=True)
        yield


def as_csv(rows: Iterable[tuple]) -> str:
    """Lines of metrics.csv."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def lines_of(rows: Iterable[Metric]) -> str:
    """Metrics as lines of metrics.csv."""
    return as_csv((row.step, row.budget, row.seed, row.name, f"{row.value:.7g}") for row in rows)


def append_metrics(folder: Path, rows: Iterable[Metric]) -> None:
    """Add rows to metrics.csv, which `rewind_metrics` began."""
    path = folder / "metrics.csv"
    with named(path), open(path, "a") as file:
        file.write(lines_of(rows))
        file.flush()
        os.fsync(file.fileno())


def read_metrics(folder: Path) -> list[Metric]:
    """All rows of metrics.csv; a last line that was cut off by a crash is left out."""
    path = folder / "metrics.csv"
    if not path.exists():
        return []
    try:
        lines = path.read_text().split("\n")[:-1]
        return [
            Metric(int(step), budget, int(seed), name, float(value))
            for step, budget, seed, name, value in csv.reader(lines[1:])
        ]
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path} is damaged: {error}") from None


def rewind_metrics(folder: Path, keep: Iterable[Metric]) -> None:
    """Replace metrics.csv as a whole by these rows."""
    write_aside(folder / "metrics.csv", (as_csv([METRICS_HEADER]) + lines_of(keep)).encode())
