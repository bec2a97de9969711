"""What security rests on, one claim each. What needs more than a test stands beside the code it is about."""

import ast
import gzip
import json
import math
import shutil
from html.parser import HTMLParser
from pathlib import Path

import jax
import made
import numpy as np
import pytest
import safetensors.numpy
from pages import ROOT
from tiny import CONFIG, begin, train

import dpmac
from dpmac import cli, privacy, tasks
from dpmac.config import BadInput, Budget, Channel, dumps
from dpmac.experiments import Cell
from dpmac.figures import report
from dpmac.privacy.mechanisms.additive import grid_exponent
from dpmac.results import records, store
from dpmac.runner import checkpoint, finish, population

SOURCES = sorted((ROOT / "src").rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "subprocess"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "literal_eval", "load_module"}
FORBIDDEN_LOADS = {("np", "load"), ("numpy", "load"), ("jnp", "load"), ("eqx", "tree_deserialise_leaves")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was stopped and one that is finished."""
    home = tmp_path_factory.mktemp("security")
    begin(home / "stopped", pieces=1)
    train(home / "finished")
    return home


@pytest.fixture
def copy(runs, tmp_path):
    return Path(shutil.copytree(runs / "finished", tmp_path / "home/run"))


# Files that were read -------------------------------------------------------------------------------------------------


def violations(tree: ast.AST) -> list[str]:
    """Names of what turns data into code."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [item.name for item in node.names] + [getattr(node, "module", None) or ""]
            found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = node.value.id, node.attr
            run = place[0] == "os" and place[1] in FORBIDDEN_CALLS
            found += [".".join(place)] if run or place in FORBIDDEN_LOADS else []
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_nothing_turns_data_into_code(path):
    assert violations(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from yaml import load", "eval('1')", "exec(text)", "os.system('x')", "np.load(path)"],
)
def test_what_turns_data_into_code_would_be_found(code):
    assert violations(ast.parse(code))


def resealed(path: Path, **changes: object) -> None:
    """Change a checkpoint's JSON as someone would who knows how it is sealed."""
    place = {key: value for key, value in json.loads(path.read_text()).items() if key != "seal"} | changes
    path.write_text(json.dumps({**place, "seal": checkpoint.digest(dumps(place).encode())}))


@pytest.mark.parametrize("name", ["/../../../outside", "../../outside", "x/../../outside", "", 3, None, "A" * 32])
def test_a_checkpoint_leads_to_no_file_but_its_own(name, copy, monkeypatch):
    (tensors,) = (copy / "checkpoints").glob("*.safetensors")
    shutil.copy(tensors, copy.parent / "outside.safetensors")
    resealed(copy / "checkpoints/group-0.json", digest=name)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(BadInput, match="names no digest"):
        population.load(copy)


@pytest.mark.parametrize("groups", ['{"runs": "../../x"}', "[]", '"../x"', '{"runs": -1}', '{"runs": 1e9}'])
def test_groups_are_a_number_and_nothing_else(groups, copy):
    (copy / "checkpoints/groups.json").write_text(groups)
    with pytest.raises(BadInput, match=r"groups\.json is damaged"):
        population.load(copy)


class Elements(HTMLParser):
    """Elements of a page as a browser sees them, with the text in those that are run."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(" ".join([tag, *(f"{name}={value}" for name, value in attrs)]))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1].startswith("script"):
            self.found.append(f"script: {data[:20]}")


def test_names_in_packed_results_are_no_paths_and_no_markup(tmp_path):
    """A file of results whose runs are called what an attacker likes: nothing is written but the page, as text."""
    results = made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac")], evaluations=2, episodes=True)
    (record,) = (record for record in results.runs.values() if record.seed == 0)
    code = "alert(1)"
    for evil in ("../../evil", "/tmp/evil", f"<script>{code}</script>", f"ccn-dpmac-</script><script>{code}-seed-0"):
        results.runs[evil] = record._replace(name=evil)
    final = {**record.final, "population": {**record.final["population"], "name": f"<script>{code}"}}
    episode = {**record.episodes[0], "bodies": [{"label": f"</script><script>{code}</script>"}] * 5}
    results.runs[record.name] = record._replace(final=final, episodes=[episode])
    results.slices.append({"seconds": 1.0, "command": f"<script>{code}", "device": f"<img src=x onerror={code}>"})
    folder = tmp_path / "deep/results"
    folder.mkdir(parents=True)
    records.pack(results, folder / "all.json.gz")
    line = ["report", str(folder), "--out", str(folder / "page.html"), "--figures", str(folder / "figures")]
    assert cli.main(line) == 0
    page = (folder / "page.html").read_text()
    assert code in page
    assert not [item for item in Elements(page).found if item.startswith(f"script: {code}") or "onerror" in item]
    assert [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(folder)] == []
    assert not any("evil" in path.name for path in folder.rglob("*"))


def test_markup_that_is_not_escaped_would_be_found():
    assert "script: alert(1)" in Elements("<p><script>alert(1)</script>").found


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("pettingzoo:subprocess:run", {"args": "touch MARK", "shell": True}),
        ("pettingzoo:subprocess:Popen", {"args": "touch MARK", "shell": True}),
        ("subprocess:Popen", {"args": "touch MARK", "shell": True}),
        ("os:system", {"command": "touch MARK"}),
    ],
)
def test_a_configuration_that_was_read_calls_nothing_but_tasks(task, options, copy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**data, "task": task, "task_options": options}))
    for command in (["evaluate"], ["resume"], ["watch", "--out", "film.gif"]):
        assert cli.main([command[0], str(copy), *command[1:]]) == 2
    assert not (tmp_path / "MARK").exists()


@pytest.mark.parametrize("method", ["subprocess:Popen", "os:system", "builtins:exec"])
def test_nor_anything_but_protocols(method, copy):
    data = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**data, "method": method, "method_options": {"args": "true"}}))
    with pytest.raises(BadInput, match=r"is not a dpmac\.agents\.protocol\.Protocol"):
        population.load(copy)


def test_a_small_file_of_results_cannot_fill_the_memory(tmp_path, monkeypatch):
    """Much of nothing compresses well."""
    monkeypatch.setattr(records, "LARGEST", 2**20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(BadInput, match="too large"):
        records.read(tmp_path)


# Deployment -----------------------------------------------------------------------------------------------------------


def spoken(folder: Path, episodes: int = 3) -> np.ndarray:
    """What a freshly loaded team says (episode, agent, number) about one observation."""
    team = dpmac.load(folder, epsilon=1, limit=math.inf, new_ledger=not (folder / "ledger.json").exists())
    seen = np.zeros((2, team.program.task.observation_size))
    return np.stack([np.asarray(team.act(seen, team.start())[1].released) for _ in range(episodes)])


def known(noise: np.ndarray, seed: int) -> bool:
    """Whether keys that come from a seed give this noise, in units of σ, up to the grid."""
    key = jax.random.key(seed)
    keys = [key, *jax.random.split(key, 8), *(jax.random.fold_in(key, count) for count in range(8))]
    drawn = np.concatenate([np.ravel(jax.random.normal(key, (8, 8))) for key in keys])
    windows = np.lib.stride_tricks.sliding_window_view(drawn, len(noise))
    return bool(np.any(np.abs(windows - noise).max(axis=1) < 2e-3))


def test_the_training_seed_does_not_reveal_deployment_noise(copy):
    """The same weights in two processes say different things, and no key of a training seed gives the noise again."""
    assert not np.isin(spoken(copy), spoken(copy)).all(axis=-1).any()
    team = dpmac.load(copy, epsilon=1, limit=math.inf)
    measurement, message = team._measurements[0], np.array([0.1, -0.2, 0.05, 0.0])
    for seed in CONFIG.seeds:
        measurement.begin()
        left = measurement.release(0, message)
        assert left is not None
        assert not known((left.copies[0] - message) / team.noise[0], seed)
        planted = np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(seed), 3), (8, 8)))[2, 1:5]
        assert known(np.round(planted * 1024) / 1024, seed)  # would be found


def test_deployed_numbers_lie_on_one_grid_whatever_was_said(copy):
    team = dpmac.load(copy, epsilon=1, limit=math.inf, new_ledger=True)
    grid = 2.0 ** grid_exponent(team.team.channel.spec.clip_norm, float(team.noise[0]))
    said = spoken(copy)[:, 0].astype(float) / grid
    assert np.array_equal(said, np.rint(said))


def test_the_statement_says_how_released_values_are_written(runs):
    claims = store.read_json(runs / "finished/privacy.json")["claims"]
    for entries in claims.values():
        for entry in entries:
            assert "float32 multiples of a power of two" in entry["released_as"]
    symbols = privacy.claim(Budget((1.0,)), Channel("response"), 2, 5)
    assert symbols[0]["released_as"] == "one of a few whole numbers"


def test_the_statement_says_what_the_length_of_an_episode_tells(runs):
    """Environments from outside may end early; `tests/tasks/test_hosted.py` shows that they are padded."""
    said = store.read_json(runs / "finished/privacy.json")["length"]
    assert said == "every episode has the same number of steps and messages"
    assert "padded" in tasks.abilities(tasks.make("pettingzoo:mpe2.simple_reference_v3")).length


# What is passed on ----------------------------------------------------------------------------------------------------


def arrays(folder: Path) -> dict[str, np.ndarray]:
    (path,) = (folder / "checkpoints").glob("*.safetensors")
    return safetensors.numpy.load(path.read_bytes())


def test_finished_runs_hold_networks_and_no_observation(runs):
    """A run in training does: its replay is how it continues bit-identically."""
    replayed = [name for name in arrays(runs / "stopped") if "observations" in name]
    assert replayed
    kept = arrays(runs / "finished")
    assert kept
    assert not any("observations" in name or "replay" in name or "optimiser" in name for name in kept)
    networks = jax.eval_shape(lambda: population.Kept(population.load(runs / "finished").teams))
    assert set(kept) == {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(networks)}


def test_deployed_agents_hold_weights_and_noise_scales_alone(copy):
    before = {path.name for path in copy.rglob("*")}
    spoken(copy)
    after = {path.name for path in copy.rglob("*")} - before
    assert after == {"ledger.json"}
    assert "observation" not in (copy / "ledger.json").read_text()


def test_example_episodes_hold_what_a_film_shows_and_no_observation(runs):
    loaded = population.load(runs / "finished")
    watched = finish.watch_all(loaded, len(loaded.runs))
    one = jax.tree.map(lambda leaf: leaf[0], watched)
    for episode in finish.told(loaded.program.task, one.examples, one.noise):
        assert set(episode) == {"agents", "bodies", "places", "actions", "rewards", "released", "noise"}


def test_raw_messages_are_marked_in_reports():
    page = report.page(made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac", "step-1")], episodes=True))
    assert "raw messages" in page.lower()


def test_raw_messages_are_marked_in_films(runs, tmp_path, monkeypatch):
    from dpmac.analysis import film

    shown = []
    monkeypatch.setattr(
        film, "frames", lambda panels, size: shown.extend(panels) or [np.zeros((8, 8, 3), np.uint8)] * 2
    )
    film.save(runs / "finished", tmp_path / "film.gif", size=64)
    assert [panel.title.startswith("RAW messages") for panel in shown] == [False, True]
    assert "epsilon 1 (sigma" in shown[0].title
