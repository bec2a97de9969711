"""`dpmac doctor`: all is well here, and what is not is seen."""

import json
import zlib

import jax

from dpmac import cli
from dpmac.cli import doctor
from dpmac.privacy import accounting

NAMES = ["versions", "devices", "memory", "cache", "accounting", "auditing", "learning"]


def test_a_sound_installation_passes_all_checks(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert [check["name"] for check in told["checks"]] == NAMES
    assert all(check["ok"] for check in told["checks"])
    assert sum(check["seconds"] for check in told["checks"]) < 120
    said = {check["name"]: check["said"] for check in told["checks"]}
    assert "dpmac 0." in said["versions"]
    assert "15.93" in said["accounting"]


def test_too_little_noise_and_a_broken_machine_are_seen(monkeypatch, capsys):
    right = accounting.calibrate
    monkeypatch.setattr(accounting, "calibrate", lambda *given: right(*given) / 2)

    def devices() -> doctor.Finding:
        raise RuntimeError("the fan is on fire")

    monkeypatch.setattr(doctor, "devices", devices)
    monkeypatch.setattr(doctor, "learning", lambda: doctor.Finding(True, "left out"))
    assert cli.main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = {line.split()[1]: line for line in lines if line.startswith("FAIL")}
    assert set(failed) == {"devices", "accounting", "auditing"}
    assert "the fan is on fire" in failed["devices"]
    assert lines[-1].startswith("something is wrong")


def test_without_a_cache_nothing_is_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-cache").touch()
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    jax.config.update("jax_compilation_cache_dir", "")
    try:
        assert doctor.cache() == (True, "off, because JAX_COMPILATION_CACHE_DIR is empty")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert [path.name for path in tmp_path.iterdir()] == ["my-cache"]


def test_programs_that_a_killed_process_has_half_written_are_removed(tmp_path):
    data = zlib.compress(bytes(range(256)) * 20)
    for name, content in {"whole": data, "cut": data[:-5], "empty": b"", "other": b"(zstd"}.items():
        (tmp_path / f"{name}-cache").write_bytes(content)
    assert doctor.mend(tmp_path) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"whole-cache", "other-cache"}
    assert doctor.mend(tmp_path) == 0
