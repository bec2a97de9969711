"""A file of lines that only grows, each tied to the one before by its hash, and that several processes may share.

Each line is a JSON object that ends with a random number (`nonce`), the hash of the line before it (`previous`) and its
own (`hash`: SHA-256 of the line up to that field). The hash of the last line, the head, stands for the whole file.
Without the random numbers, a restored backup could grow back to a head that the file had before.

The lock is on the file itself. Nothing replaces a chain, so there is no second file whose removal would let two
processes in; and after locking, the path must still name the locked file, by one link and no symbolic one.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dpmac.config import BadInput, require, to_json

ATTEMPTS = 100
"""How often a file that was replaced while its lock was waited for is opened again."""
FIRST = b"0" * 64
"""What the first line names as the hash of the line before it."""
MARK = b', "hash": "'
CLOSING = len(b', "nonce": "", "previous": ""') + 32 + 64 + len(MARK) + 64 + len(b'"}\n')
"""Bytes of a line behind its content, all of fixed lengths."""
NONCE, HASH = slice(12 - CLOSING, 44 - CLOSING), slice(-67, -3)
"""Where a line holds its random number and its hash."""


class Untrusted(BadInput):
    """A chain that is broken, or is not the one that was seen before; nothing may be released."""


class Place(NamedTuple):
    """A place in a chain up to which it was read and found sound."""

    entries: int = 0
    """Lines before it."""
    end: int = 0
    """Bytes before it."""
    last: bytes = b""
    """The line before it."""

    @property
    def head(self) -> bytes:
        """The hash of the line before it."""
        return self.last[HASH] or FIRST


# Lines ----------------------------------------------------------------------------------------------------------------


def _line(data: Any, previous: bytes) -> bytes:
    content = json.dumps(to_json(data), allow_nan=False)[:-1].encode()
    return _closed(content, os.urandom(16).hex().encode(), previous)


def _closed(content: bytes, nonce: bytes, previous: bytes) -> bytes:
    """A whole line: what it says, without its last brace, and what ties it to the line before."""
    front = b'%b, "nonce": "%b", "previous": "%b"' % (content, nonce, previous)
    return b'%b%b%b"}\n' % (front, MARK, hashlib.sha256(front).hexdigest().encode())


def lines(file: BinaryIO, place: Place, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Contents (JSON) and whole lines from a place on, each checked against the one before.

    A last line that lacks nothing but its end counts. A torn one, of which nobody was told, is left out.
    """
    file.seek(place.end)
    previous = place.head
    for number, line in enumerate(file, place.entries + 1):
        complete = line if line.endswith(b"\n") else line + b"\n"
        content = complete[:-CLOSING]
        if complete != _closed(content, complete[NONCE], previous):
            if complete is not line and _torn(line):
                return
            raise Untrusted(f"{path} was damaged or edited: line {number} breaks the chain; nothing may be released")
        yield content + b"}", complete
        previous = complete[HASH]


def _torn(line: bytes) -> bool:
    """Whether a last line without an end is the beginning of a line, as a crash leaves it, zeros behind it or not.

    A line that is as long as its hash says and does not fit is damaged instead.
    """
    text = line.rstrip(b"\0")
    found = text.find(MARK)
    short = found < 0 or len(text) < found + len(MARK) + 64 + len(b'"}')
    return short and text[:1] in b"{" and text.isascii() and text.decode().isprintable()


def check_seen(file: BinaryIO, place: Place, path: Path) -> None:
    """Refuse a file that does not hold, at this place, the line that was seen there."""
    file.seek(place.end - len(place.last))
    if file.read(len(place.last)) != place.last:
        raise Untrusted(
            f"{path} does not hold the {place.entries} entries that this process has seen in it: a backup was "
            "restored, or entries were removed; nothing may be released"
        )


# Files ----------------------------------------------------------------------------------------------------------------


def real_path(path: Any) -> Path:
    """A path in its real folder; its last part is left as it is."""
    require(isinstance(path, (str, os.PathLike)), f"path must name a file, not {path!r}")
    folder = Path(os.path.realpath(Path(path).parent))
    require(folder.is_dir(), f"{folder} is not a folder")
    return folder / Path(path).name


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY, links: int = 1) -> Iterator[int]:
    """A descriptor of the file that a path names: a real one, with at most so many hard links."""
    real = os.path.realpath(path) == str(path)
    require(real, f"{path} is a symbolic link or lies behind one; a ledger is opened at its real path only")
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; a new ledger is begun with create=True") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be opened: {error.strerror}; nothing may be released") from None
    try:
        check_links(path, descriptor, links)
        yield descriptor
    finally:
        os.close(descriptor)


def check_links(path: Path, descriptor: int, links: int = 1) -> None:
    """Refuse an open file that has more than so many names, or is none."""
    found = os.fstat(descriptor)
    require(stat.S_ISREG(found.st_mode), f"{path} is not a file")
    require(found.st_nlink <= links, f"{path} has {found.st_nlink} hard links; a ledger may have one name only")


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold an open file alone; the operating system lets go of it should the process die. Only this needs POSIX."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def held(path: Path, flags: int = 0, links: int = 1) -> Iterator[int]:
    """A descriptor of the file that a path names, under its lock; if it was replaced meanwhile, of the new one."""
    for _ in range(ATTEMPTS):
        with opened(path, os.O_RDWR | flags, links) as descriptor, locked(descriptor):
            if names(path, descriptor):
                check_links(path, descriptor, links)
                yield descriptor
                return
    raise BadInput(f"{path} is replaced over and over; nothing may be released")


def names(path: Path, descriptor: int) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def write(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of it, or fail, and wait until it is on disk."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]
    os.fsync(descriptor)


def begin(path: Path, data: Any, replace: bool = False) -> None:
    """Put a chain of one line at a path, all of it or nothing: written aside, synced, renamed, the folder synced."""
    aside = path.with_name(path.name + ".new")
    with held(aside, os.O_CREAT) as descriptor:
        if not replace and os.path.lexists(path):
            aside.unlink()
            raise BadInput(f"{path} exists already; without create=True it is opened")
        os.ftruncate(descriptor, 0)
        write(descriptor, _line(data, FIRST), 0)
        os.replace(aside, path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(descriptor: int, place: Place, data: Any) -> None:
    """Add a line at the end of a held chain, in place of what a crash has left there; it is on disk on return."""
    try:
        if os.fstat(descriptor).st_size > place.end:
            os.ftruncate(descriptor, place.end)
        write(descriptor, _line(data, place.head), place.end)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, place.end)
        raise
