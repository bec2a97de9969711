"""Damaged files: refused by name, or read as what they were; never half of something, and no traceback."""

import contextlib
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import CONFIG, begin, leaves, train

from dpmac import cli
from dpmac.config import BadInput, RunConfig
from dpmac.privacy import Ledger, Release
from dpmac.privacy.ledger import verify
from dpmac.results import records, store
from dpmac.runner import population

SIZES = [pytest.param(20, 1, id="20"), pytest.param(250, 2, id="250", marks=pytest.mark.large)]


def damage(path: Path, chance: random.Random) -> str:
    """Spoil a file in one of the ways in which disks and people do; what was done."""
    data = bytearray(path.read_bytes())
    way = chance.choice(["flip", "flip", "cut", "empty", "noise", "zeros", "double", "swap", "remove", "utf16"])
    place = chance.randrange(len(data))
    if way == "flip":
        data[place] ^= 1 << chance.randrange(8)
    elif way == "cut":
        del data[place:]
    elif way == "empty":
        data.clear()
    elif way == "noise":
        data[place : place + 64] = chance.randbytes(64)
    elif way == "zeros":
        data[place : place + 512] = bytes(min(512, len(data) - place))
    elif way == "double":
        data = data + data
    elif way == "swap":
        data = data[place:] + data[:place]
    elif way == "utf16":
        data = bytearray(data.decode("latin1").encode("utf-16"))
    path.write_bytes(data)
    if way == "remove":
        path.unlink()
    return f"{way} at {place} of {path.name}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was stopped and one that is finished."""
    home = tmp_path_factory.mktemp("damage")
    begin(home / "stopped")
    train(home / "finished")
    return home


def state(folder: Path) -> list[np.ndarray]:
    return leaves(population.load(folder))


@pytest.mark.parametrize(("count", "seed"), SIZES)
def test_a_damaged_run_is_refused_or_unchanged(runs, count, seed, tmp_path, record_property):
    chance, refused = random.Random(seed), 0
    right = {name: state(runs / name) for name in ("stopped", "finished")}
    for number in range(count):
        name, folder = chance.choice(sorted(right)), tmp_path / str(number)
        shutil.copytree(runs / name, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
        done = damage(chance.choice(files), chance)
        try:
            found = state(folder)
            store.read_metrics(folder)
            store.read_json(folder / "privacy.json")
        except BadInput:
            refused += 1
        else:
            for one, other in zip(found, right[name], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=done)
        shutil.rmtree(folder)
    assert refused > count / 3
    record_property("counted", f"{count} damaged runs: {refused} refused, {count - refused} read as they were")


@pytest.mark.parametrize(
    ("command", "spoil"),
    [
        ("resume {}", lambda folder: shutil.rmtree(folder / "checkpoints")),
        ("report {} --out {}/page.html", lambda folder: (folder / "reference.json").write_text('"nothing"')),
    ],
)
def test_commands_refuse_a_run_that_lacks_what_they_need(command, spoil, runs, tmp_path, capsys):
    folder = shutil.copytree(runs / "finished", tmp_path / "run")
    spoil(folder)
    assert cli.main([word.replace("{}", str(folder)) for word in command.split()]) == 2
    assert "damaged" in capsys.readouterr().err


@pytest.fixture(scope="module")
def packed(runs, tmp_path_factory):
    """Finished results, as folders and as one file."""
    home = tmp_path_factory.mktemp("packed")
    loaded = population.load(runs / "finished")
    run = home / "folders/runs/one"
    shutil.copytree(runs / "finished", run)
    (run / "lock").unlink()
    config = RunConfig(**{**vars(loaded.config), "budgets": loaded.config.budgets[:1], "seeds": (0,)})
    (run / "config.json").unlink()
    store.write_json(run / "config.json", config)
    store.write_json(run / "final.json", {"return_mean": 1.0, "return_std": 0.5, "episodes": 4})
    store.write_json(home / "folders/slices.json", [{"seconds": 1.0, "runs": 1}])
    (home / "file").mkdir()
    records.pack(records.read(home / "folders"), home / "file/all.json.gz")
    return home


@pytest.mark.parametrize(("count", "seed"), SIZES)
def test_damaged_results_are_refused_or_read(packed, count, seed, tmp_path, record_property):
    chance, refused = random.Random(seed), 0
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(packed / chance.choice(["folders", "file"]), folder)
        files = [path for path in folder.rglob("*") if path.is_file() and "checkpoints" not in path.parts]
        done = damage(chance.choice(sorted(files)), chance)
        try:
            found = records.read(folder)
        except BadInput:
            refused += 1
        else:
            for record in found.runs.values():
                assert isinstance(record.config, RunConfig), done
        shutil.rmtree(folder)
    assert refused > count / 4
    record_property("counted", f"{count} damaged results: {refused} refused, {count - refused} read")


@pytest.mark.parametrize(("count", "seed"), SIZES)
def test_a_damaged_ledger_is_refused_or_says_the_same(count, seed, tmp_path, record_property):
    """One that is cut, as by a crash or by a backup, may say what it said earlier; then its last head is not in it."""
    chance, refused, cut = random.Random(seed), 0, 0
    release = Release(CONFIG.channel, 5.0, 5)
    ledger = Ledger(tmp_path / "ledger.json", [10.0, 10.0], 1e-4, create=True)
    ledger.charge({0: release})
    spent, right, head = ledger.spent(0), (tmp_path / "ledger.json").read_bytes(), ledger.head()
    for number in range(count):
        path = tmp_path / f"{number}.json"
        path.write_bytes(right)
        done = damage(path, chance)
        if not path.exists():
            continue
        left = path.read_bytes().rstrip(b"\0")
        earlier = right.startswith(left) and len(left) < len(right) - 1
        try:
            found = Ledger(path, [10.0, 10.0], 1e-4).spent(0)
        except BadInput:
            refused += 1
        else:
            cut += earlier
            assert found == (0.0 if earlier else pytest.approx(spent)), done
            with pytest.raises(BadInput, match="no entry with the hash") if earlier else contextlib.nullcontext():
                verify(path, head)
    assert refused > count / 3
    record_property(
        "counted", f"{count} damaged ledgers: {refused} refused, {cut} cut and without their head, the others the same"
    )
