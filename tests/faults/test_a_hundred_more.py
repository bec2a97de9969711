"""More than a hundred inputs that somebody might try, each wrong in its own way: one plain sentence, exit code 2, and
nothing is written. None of them is followed in part."""

import math
import shlex

import numpy as np
import pytest
from tiny import CONFIG, train

import dpmac
from dpmac import cli, privacy
from dpmac.config import BadInput, Budget, Channel, NetworkConfig, Release, RunConfig, Training, from_json
from dpmac.figures import curves
from dpmac.results import stats

TRAIN = """
--config missing.toml
--config .
--config
--epsilon 1 1.0
--epsilon 1:2:3
--epsilon 0x1
--epsilon 1e7
--epsilon 1e-7
--epsilon 1,2
--epsilon -inf
--delta 1.0
--delta 1e-400
--unit step
--accountant rdp
--learner ppo
--learner os:system
--learner dpmac.learner.base:Learner
--mechanism laplace
--mechanism os:path
--mechanism response --sample-rate 0.5
--mechanism response --noise-at receiver
--mechanism subset --clip-norm 1
--mechanism code --message-size 3
--mechanism response --symbols 300
--mechanism response --epsilon 1 --accountant paper
--method silent --epsilon 1
--method i2c --learner pathwise
--method i2c --clock
--method tarmac --rounds 17
--method tarmac --rounds 2 --sample-rate 0.5
--method tarmac --method-set signature=99
--method tarmac --method-set signature=x
--method i2c --method-set percentile=101
--method telegraph
--rounds 2
--period 1.5
--mix 4
--mix 4 --anneal-from 5 --epsilon inf
--anneal-from 2 --epsilon 3
--anneal-from 5 --epsilon 1:9
--first-seed 4294967295 --seeds 2
--first-seed 0.5
--seeds 0
--seeds 20000
--steps 1e-6
--steps 1.5
--steps 1e400
--steps nan
--steps many
--steps 0
--episodes 0
--evaluations 0
--evaluation-episodes 0
--hidden 0
--hidden 4097
--products -1
--batch -1
--buffer 2
--updates-per-episode 0.1
--updates-per-episode nan
--tau 2
--gradient-norm 0
--learning-rate nan
--learning-rate inf
--explore-start 2
--explore-steps 1.5
--discount 1.5
--logit-penalty -1
--checkpoint-seconds -1
--checkpoint-seconds nan
--most-at-once -1
--quiet --verbose
--set symbols=1
--set symbols=2 symbols
--set horizon=1
--set colour=red
--learner mappo --minibatches 3
--learner mappo --batch 4
--learner pathwise --starts 0
--learner pathwise --tau 0.1
--clip-norm inf
--noise-at middle
--recipient-rate 0
--copies 3
--out
--tensorboard yes
--steps 10000000000000000000000
--evaluation-episodes 1000000000
--episodes 1000000000
--batch 1000000000
--train-epsilon 0
--method dpmac.agents.protocol:Protocol
--method-set deterministic=true deterministic=false
--set symbols=2 symbols=3
--epsilon ""
""".strip().splitlines()

OTHERS = """
config
config nope
config ccn --out x
config ccn --hidden 0
config ccn --config missing.json
plot --out a.png
plot nowhere --out a.png
plot . --out a.png
plot nowhere --out a.jpg
report --out a.html
report nowhere --out a.html
report . --out a.html
report . --out a.txt
evaluate nowhere
evaluate . --episodes 1
watch nowhere --out a.gif
watch . --out a.mp4
resume nowhere
resume .
train rounds --learner pathwise --out x
train pettingzoo:nope --out x
train --out x
train ccn
privacy calibrate --epsilon 0
privacy calibrate --epsilon 1e7
privacy calibrate --epsilon 1:2:x
privacy calibrate --horizon 10000000
privacy calibrate --delta 0
privacy calibrate --mechanism response --clip-norm 2
privacy calibrate --symbols 5
privacy calibrate --accountant paper --neighbours transition
privacy calibrate --accountant paper --mechanism response
privacy account
privacy account --sigma -1
privacy account --sigma nan
privacy account --flip 0.1
privacy account --mechanism response --sigma 1
privacy account --mechanism response --flip 0.9
privacy account --sigma 1 --flip 0.1
privacy audit nowhere
privacy audit --epsilon inf
privacy audit --epsilon 1 --confidence 1
privacy audit --epsilon 1 --size 0
privacy audit --epsilon 1 --path both --neighbours transition
privacy explain --neighbours transition
privacy explain --plot a.docx
privacy ledger verify nowhere
privacy ledger verify .
privacy ledger
privacy whisper
tasks nope
tasks ccn --episodes 0
tasks ccn --film a.txt
tasks ccn --seed -1
tasks ccn --set agents=1
reproduce pong --out r
reproduce all --scale huge --out r
reproduce all --tasks pong --out r
reproduce all --time-limit 0 --out r
frontier pong
frontier ccn --epsilon 0
frontier ccn --lines carrier-pigeon
bench env --peers nobody
bench train --tasks pong
games cgp --colour red
doctor --fast
--completion tcsh
--completion bash zsh
--version now
sing
games
games rounds --horizon 100000000
train "" --out x
sweep ccn --grid hidden=8 --address 127.0.0.1:1 --out x
sweep ccn --grid hidden=8 --gpus-per-job 1 --out x
reproduce all --insecure --out x
reproduce all --seeds 1000000 --out x
frontier ccn --lines --out x
frontier ccn --lines silent silent --out x
frontier ccn --audit -1 --out x
frontier ccn --page missing.md --out x
frontier ccn --page . --out x
privacy calibrate --clip-norm 1e-320
privacy calibrate --neighbours transition --sample-rate 0.5 --horizon 100000
privacy account --sigma 1e300
privacy account --sigma 1 --delta 1e-320
privacy audit --epsilon 1 --episodes 100000000000000
privacy audit --epsilon 1 --size 100000000
privacy explain --size 0
privacy stream --epsilon
tasks ccn --episodes 1000000000000
bench env --episodes
bench train --populations
bench train --iterations 0
bench train --repeats 0
bench train --learners nobody
bench train --methods nobody
""".strip().splitlines()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hundred") / "run"
    train(folder)
    return folder


def refused(words, capfd):
    """That a command says in few lines what is wrong, and no more."""
    assert cli.main(words) == 2, words
    out, error = capfd.readouterr()
    assert "Traceback" not in out + error
    assert error.strip()
    assert "must have different signs" not in error
    assert not error.startswith(("dpmac: KeyError", "dpmac: TypeError", "dpmac: ValueError"))
    return error


def test_there_are_more_than_a_hundred():
    assert len(TRAIN) + len(OTHERS) + len(OF_A_RUN) + len(CALLS) > 150


@pytest.mark.parametrize("line", TRAIN)
def test_train_refuses_it(line, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    out = [] if line == "--out" else ["--out", "run"]
    refused(["train", "probe-listen", *shlex.split(line), *out], capfd)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", OTHERS)
def test_other_commands_refuse_it(line, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    refused(shlex.split(line), capfd)
    assert not [path for path in tmp_path.iterdir() if path.name != "lock"]


OF_A_RUN = """
train probe-listen --out {}
train --config {}/config.json --out {}
train --config {}/privacy.json --out x
train --config {}/config.json --learner mappo --out x
evaluate {} --episodes 1
evaluate {} --epsilon x
evaluate {} --epsilon 1:2:3
evaluate {} --delta 0.1
evaluate {} --epsilon 1 --delta 2
watch {} --out film.gif --size 15
watch {} --out film.gif --size 5000
watch {} --out film.gif --fps 0
watch {} --out film.gif --fps inf
watch {} --out film.gif --seed 9
watch {} --out film.gif --epsilon 7
watch {} --out film.gif --epsilon x
watch {} --out film.gif --episode -1
watch {} --out film.avi
plot {} --out curves.pdf
plot {} --out curves.png --metric colour
plot {} nowhere --out curves.png
report {} --out page.html --figures figures
report {} --out page.pdf
report {} nowhere --out page.html
resume {} --checkpoint-seconds -1
resume {} --quiet --verbose
privacy audit {} --epsilon 2
privacy audit {} --deployed-episodes 1
privacy audit {} --confidence 2
privacy eavesdrop {} --path telepathy
privacy eavesdrop {} --step -1
privacy eavesdrop {} --episodes 0
privacy ledger verify {}
evaluate {} --episodes 1000000000000
watch {} --out film.gif --episode 100000000000000000000
watch {} --out {}/config.json/film.gif
plot {} --out {}/config.json/curves.png
train probe-listen --out {}/config.json/run
report {}/config.json/run --out page.html
deploy export {} --agent 0 --epsilon 1 --limit 0.5 --out bundle
privacy eavesdrop {} --episodes 100000000000
reproduce all --scale smoke --export {}/config.json/all.json.gz --out x
""".strip().splitlines()


@pytest.mark.parametrize("line", OF_A_RUN)
def test_commands_on_a_run_refuse_it(line, run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    refused([word.replace("{}", str(run)) for word in shlex.split(line)], capfd)
    assert not list(tmp_path.iterdir())


CALLS = {
    "a run of a number": lambda run: from_json(RunConfig, {"task": 3}),
    "a channel without a name": lambda run: privacy.mechanisms.of(Channel("")),
    "half a symbol": lambda run: Channel("response", symbols=2.5),  # type: ignore[arg-type]
    "a budget of nothing": lambda run: Budget(()),
    "a budget that is not a number": lambda run: Budget((math.nan,)),
    "a budget beyond all": lambda run: Budget((1e300,)),
    "networks of no width": lambda run: NetworkConfig(hidden=0),
    "training of minus one step": lambda run: Training(steps=-1),
    "an episode of a billion steps": lambda run: Release(Channel(), 1.0, 10**9),
    "noise that is not a number": lambda run: Release(Channel(), math.nan),
    "calibration at no delta": lambda run: privacy.calibrate(Channel(), 1.0, 0.0),
    "a cost at epsilon minus one": lambda run: privacy.delta(Release(Channel(), 1.0), -1.0),
    "a ledger without a place": lambda run: privacy.Ledger(run / "nowhere" / "ledger.json", [1.0], 1e-4, create=True),
    "a ledger that is not there": lambda run: privacy.Ledger(run / "no.json", [1.0], 1e-4),
    "a ledger of one number": lambda run: privacy.Ledger(run / "no.json", 1.0, 1e-4, create=True),  # type: ignore[arg-type]
    "a ledger of words": lambda run: privacy.Ledger(run / "no.json", ["one"], 1e-4, create=True),  # type: ignore[list-item]
    "a ledger that is another file": lambda run: privacy.Ledger(run / "config.json", [1.0], 1e-4),
    "a team without a limit": lambda run: dpmac.load(run, epsilon=1),
    "a team of no budget": lambda run: dpmac.load(run, epsilon=7, limit=1.0),
    "a team of words": lambda run: dpmac.load(run, epsilon="much", limit=1.0),
    "a limit of words": lambda run: dpmac.load(run, epsilon=1, limit="much"),  # type: ignore[arg-type]
    "a folder that is not there": lambda run: dpmac.evaluate(run / "nowhere"),
    "no episodes": lambda run: dpmac.evaluate(run, episodes=0),
    "training elsewhere": lambda run: dpmac.train(RunConfig("ccn"), run),
    "training in a file": lambda run: dpmac.train(CONFIG, run / "config.json"),
    "a picture of nothing": lambda run: curves.plot([]),
    "a picture of another kind": lambda run: dpmac.plot(run, "curves.bmp"),
    "a task that nobody has": lambda run: dpmac.tasks.make("chess"),
    "a task of no agents": lambda run: dpmac.tasks.make("cn", agents=0),
    "a guess at no secrets": lambda run: privacy.private_accuracy(1.0, 1e-4, 0),
    "scores of nobody": lambda run: stats.bootstrap([]),
    "a budget that is a number": lambda run: Budget(1.0),  # type: ignore[arg-type]
    "a budget of words": lambda run: Budget(("1",)),  # type: ignore[arg-type]
    "a number of seeds": lambda run: RunConfig("ccn", seeds=5),  # type: ignore[arg-type]
    "half a seed": lambda run: RunConfig("ccn", seeds=(0.5,)),  # type: ignore[arg-type]
    "a clip norm of words": lambda run: Channel(clip_norm="one"),  # type: ignore[arg-type]
    "a mechanism that is a number": lambda run: privacy.mechanisms.of(Channel(3)),  # type: ignore[arg-type]
    "calibration to a word": lambda run: privacy.calibrate(Channel(), "1", 1e-4),  # type: ignore[arg-type]
    "a task that is a number": lambda run: dpmac.tasks.make(3),  # type: ignore[arg-type]
    "a mechanism for a channel": lambda run: privacy.calibrate("gaussian", 1.0, 1e-4),  # type: ignore[arg-type]
    "numbers for budgets": lambda run: RunConfig("ccn", budgets=(1.0,)),  # type: ignore[arg-type]
    "two and a half secrets": lambda run: privacy.private_accuracy(1.0, 1e-4, 2.5),  # type: ignore[arg-type]
    "a dict to train": lambda run: dpmac.train({"task": "ccn"}, run),  # type: ignore[arg-type]
    "an audit of one episode": lambda run: privacy.audit_channel(lambda *_: np.zeros((1, 1, 1)), 1e-4, 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_python_refuses_it(name, run):
    with pytest.raises(BadInput) as told:
        CALLS[name](run)
    assert len(str(told.value)) > 10
