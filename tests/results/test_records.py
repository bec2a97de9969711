"""Finished runs survive the way into one file and back."""

import gzip
from dataclasses import replace
from pathlib import Path

import made
import numpy as np
import pytest

from dpmac.config import BadInput
from dpmac.experiments import Cell
from dpmac.results import records
from dpmac.results.records import Results
from dpmac.results.stats import marl_eval

CELLS = [Cell("ccn", "dpmac", "step-0.1"), Cell("ccn", "silent")]


@pytest.fixture(scope="module")
def results():
    return made.results(lambda cell: -12.3456789, cells=CELLS, seeds=2, episodes=True)


def test_packed_results_come_back_as_they_were(results, tmp_path):
    records.pack(results, tmp_path / "some.json.gz")
    back = records.read(tmp_path)
    assert back.runs.keys() == results.runs.keys()
    assert back.slices == results.slices
    for name, run in results.runs.items():
        other = back.runs[name]
        assert other.config == run.config
        assert (other.final, other.episodes) == (run.final, run.episodes)
        assert other.noise == pytest.approx(run.noise)
        assert other.last_tenth == pytest.approx(run.last_tenth, rel=1e-4)
        for metric, values in run.metrics.items():
            np.testing.assert_allclose(other.metrics[metric], values, rtol=1e-4)


def test_packing_twice_gives_the_same_bytes(results, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        records.pack(results, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_infinite_values_survive(results, tmp_path):
    name, run = next(iter(results.runs.items()))
    endless = run._replace(metrics={**run.metrics, "signal_to_noise": np.array([np.inf] * len(run.steps))})
    records.pack(Results({name: endless}, []), tmp_path / "some.json.gz")
    assert np.all(np.isinf(records.read(tmp_path).runs[name].metrics["signal_to_noise"]))


def test_a_run_that_was_trained_in_two_ways_is_not_chosen_in_silence(results, tmp_path):
    for path in ("a.json.gz", "b.json.gz"):
        records.pack(results, tmp_path / path)
    assert records.read(tmp_path).runs.keys() == results.runs.keys()
    name, run = next(iter(results.runs.items()))
    other = run._replace(config=replace(run.config, task_options={"view_radius": 0.5}))
    records.pack(Results({name: other}, []), tmp_path / "b.json.gz")
    with pytest.raises(BadInput, match=f"{name} twice"):
        records.read(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: gzip.compress(b"{}")]
)
def test_a_damaged_file_is_refused_by_name(results, tmp_path, damage):
    path = tmp_path / "some.json.gz"
    records.pack(results, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadInput, match=r"some\.json\.gz"):
        records.read(tmp_path)


def test_all_of_the_paper_fits_in_little_space(tmp_path):
    everything = made.results(lambda cell: -20.0, cells=made.all_cells(True), evaluations=100, episodes=True)
    records.pack(everything, tmp_path / "all.json.gz")
    assert (tmp_path / "all.json.gz").stat().st_size < 15e6


def test_marl_eval_schema(results):
    data = marl_eval({("ccn", "dpmac"): [run for run in results.runs.values() if run.config.method == "dpmac"]})
    run = data["dpmac"]["ccn"]["dpmac"]["seed_1"]
    assert set(data["dpmac"]["ccn"]["dpmac"]) == {"seed_0", "seed_1"}
    assert [key for key in run if not key.startswith("step_")] == ["absolute_metrics"]
    assert run["step_0"]["step_count"] == 10_000
    assert isinstance(run["step_0"]["return"], list)
    assert isinstance(run["absolute_metrics"]["return"], list)


def committed(folder):
    return records.unpack(Path(__file__).parents[2] / "results" / folder / "paper.json.gz").runs


def test_committed_curves_of_ccn_end_where_their_teams_score():
    """But not those of version 0.1, whose every point is of the same 32 unlucky starts."""
    for folder, agrees in (("", True), ("version-0.1", False)):
        for run in (run for run in committed(folder).values() if run.config.task == "ccn"):
            gap = abs(run.last_tenth - run.final_return)
            assert gap < 0.5 if agrees else gap > 1.5, run.name


def test_i2c_asks_in_the_committed_runs_on_ccn_and_in_those_of_version_0_1_it_does_not():
    """Each agent, at every one of the last evaluations."""
    for folder, least, most in (("", 0.3, 0.6), ("version-0.1", 0.0, 0.05)):
        runs = [run for name, run in committed(folder).items() if name.startswith("ccn-i2c-free-")]
        assert len(runs) == 5
        for run in runs:
            shares = [run.metrics[f"asks_{agent}"][-10:] for agent in range(2)]
            assert least <= min(share.min() for share in shares) <= max(share.max() for share in shares) < most
