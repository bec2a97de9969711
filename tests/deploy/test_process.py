"""An agent's loop without a network: spent budgets, clocks that jump, slow peers, and robots that send nonsense."""

import gc
import json
import socket
import threading
import time
import weakref

import pytest
from exported import AGENTS, HORIZON, until, untrained

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.deploy import world
from dpmac.deploy.agent import Agent
from dpmac.deploy.clock import Clock
from dpmac.deploy.process import Outlet, Process, alone
from dpmac.deploy.robot import SOCKET, Robot
from dpmac.deploy.wire import Inbox

SLOT = 0.06
LIMIT = 12.0


@pytest.fixture
def wall():
    """What is added to the wall clock of each agent."""
    return [0.0] * AGENTS


@pytest.fixture
def team(tmp_path, wall):
    """Processes whose frames go straight into each other's inboxes; the budget of each holds for an episode or two."""
    agents = [Agent.open(folder) for folder in untrained(tmp_path, limit=LIMIT)]
    clocks = [Clock(SLOT, HORIZON, lambda i=i: time.time() + wall[i]) for i in range(AGENTS)]
    inboxes = [Inbox(a.index, a.others, 3, c, a.sends, a.valid) for a, c in zip(agents, clocks, strict=True)]

    def send(sender, frames):
        for other, frame in frames.items():
            inboxes[other].hear(sender, frame)

    found = []
    for i, agent in enumerate(agents):
        robot = Robot(tmp_path / f"bundle-{i}" / SOCKET, agent.observation_size)
        outlet = Outlet(agent, clocks[i], lambda frames, i=i: send(i, frames))
        found.append(Process(agent, clocks[i], inboxes[i], outlet, robot, "silent"))
    yield found
    for process in found:
        process.stop.set()
        process.outlet.stop()
        process.robot.close()


def begin(team, episodes=0):
    threads = [threading.Thread(target=process.run, args=(episodes,), daemon=True) for process in team]
    for thread in threads:
        thread.start()
    return threads


def test_a_spent_budget_ends_one_agent_and_silences_another(team):
    team[0].when_spent = "stop"
    for thread in begin(team, episodes=8):
        thread.join(20)
    assert team[0].ending == "the budget has no room for another episode"
    assert team[1].ending == team[2].ending == "played 8 episodes"
    for process in team:
        agent, status = process.agent, process.status()
        charged = agent.ledger.charged(0).total()
        assert charged == (status["messages_sent"] + status["messages_not_ready"]) / (AGENTS - 1)
        assert 0 < charged < 8 * HORIZON
        assert charged % HORIZON == 0
        assert agent.ledger.spent(0) <= LIMIT
    assert team[1].agent.silent
    assert team[1].status()["peers"]["2"]["heard"] > 5 * HORIZON  # frames come on, and say nothing
    assert team[1].status()["peers"]["0"]["missed"] > 0


def test_a_ledger_that_cannot_be_read_silences_an_agent_that_stops_when_its_budget_is_spent(team):
    process, ledger = team[0], team[0].agent.ledger
    process.when_spent, hidden = "stop", ledger.path.with_name("hidden.json")
    ledger.path.rename(hidden)
    (thread,) = begin([process], episodes=3)
    until(lambda: process.played > 0, 20)
    assert process.agent.silent
    hidden.rename(ledger.path)
    thread.join(20)
    assert process.ending == "played 3 episodes"
    assert ledger.charged(0).total() in (HORIZON, 2 * HORIZON)  # it spoke again in the next episode


def test_a_clock_that_jumps_takes_its_agent_out_of_step_and_the_others_go_on(team, wall):
    begin(team)
    until(lambda: all(process.played > 0 for process in team), 20)
    wall[0] += 3600
    until(lambda: team[0].clock.jumps == 1 and team[0].played > 2, 20)
    until(lambda: team[1].inbox.counts[0]["early"] > 0, 20)
    assert team[0].inbox.counts[1]["late"] > 0
    heard = team[1].inbox.counts[2]["heard"]
    wall[0] -= 3600
    before = team[1].inbox.counts[0]["heard"]
    until(lambda: team[1].inbox.counts[0]["heard"] > before + 3, 20)  # it is back in step
    assert team[1].inbox.counts[2]["heard"] > heard
    assert team[0].clock.jumps == 2
    for process in team:
        said = process.outlet.said + process.outlet.unsaid
        assert abs(process.agent.ledger.charged(0).total() - said / (AGENTS - 1)) <= 1


def test_a_slow_agent_is_missed_and_what_it_had_ready_too_late_never_leaves(team):
    slow, act = team[2], team[2].agent.act

    def slowly(*given):
        time.sleep(SLOT)
        return act(*given)

    slow.agent.act = slowly  # type: ignore[method-assign]
    for thread in begin(team, episodes=2)[:2]:
        thread.join(20)
    assert slow.outlet.unsaid > 0
    assert slow.outlet.said == 0
    assert team[0].played == team[1].played == 2
    assert team[0].inbox.counts[2]["heard"] > 0  # that it says nothing is said in time


def test_garbage_in_cycles_does_not_outlive_the_next_episode(team, monkeypatch):
    act, left = team[0].agent.act, []

    class Cycle:
        def __init__(self):
            self.itself = self
            left.append(weakref.ref(self))

    monkeypatch.setattr(team[0].agent, "act", lambda *given: (Cycle(), act(*given))[1])
    gc.disable()
    try:
        begin(team[:1], episodes=3)[0].join(20)
    finally:
        gc.enable()
    assert team[0].played == 3
    assert len(left) >= 3 * HORIZON
    assert sum(one() is not None for one in left) <= HORIZON


def test_a_robot_sends_observations_and_gets_actions_and_nonsense_is_counted(team):
    process = team[0]
    size = process.agent.observation_size
    with socket.socket(socket.AF_UNIX) as robot:
        robot.connect(str(process.robot._path))
        for data in ({"observation": [0.5] * size}, {"observation": [1] * (size + 1)}, {"observation": ["a"] * size}):
            robot.sendall(json.dumps(data).encode() + b"\n")
        robot.sendall(b'{"observation": [' + b"1e999, " * (size - 1) + b"1]}\n")
        until(lambda: process.robot.refused == 3, 5)
        assert process.robot.observation().tolist() == [0.5] * size
        begin(team[:1], episodes=1)
        lines = robot.recv(4096).splitlines()
    first = json.loads(lines[0])
    assert first["step"] == 0
    assert set(first) == {"episode", "step", "action"}
    with socket.socket(socket.AF_UNIX) as other:  # after nonsense that is no line of JSON, the next program is served
        other.connect(str(process.robot._path))
        other.sendall(b"\xff\xfe nonsense\n")
        while other.recv(4096):
            pass


def test_an_agent_does_not_wait_for_a_robot_that_does_not_read(team):
    robot = team[0].robot

    def act():
        for step in range(50_000):
            robot.act(0, step, 1)

    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(robot._path))
        until(lambda: robot._connection is not None, 5)
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        deaf.settimeout(5)
        while deaf.recv(1 << 20):  # what had room; then it was dropped
            pass
    with socket.socket(socket.AF_UNIX) as reading:
        reading.connect(str(robot._path))
        until(lambda: robot._connection is not None, 5)
        robot.act(1, 0, 2)
        assert json.loads(reading.recv(4096)) == {"episode": 1, "step": 0, "action": 2}


def test_a_file_in_the_place_of_the_socket_is_refused_and_kept(tmp_path):
    path = tmp_path / "weights"
    path.write_text("dear")
    with pytest.raises(BadInput, match="weights is there and is no socket"):
        Robot(path, 3)
    assert path.read_text() == "dear"
    Robot(tmp_path / SOCKET, 3)._server.close()  # as a process that is killed leaves it
    Robot(tmp_path / SOCKET, 3).close()


def test_an_absurd_action_does_not_end_the_world(tmp_path):
    task, stop = tasks.make("probe-neighbour"), threading.Event()
    robots = [Robot(tmp_path / f"{agent}.sock", task.observation_size) for agent in range(AGENTS)]

    def act():
        clock = Clock(SLOT, HORIZON)
        while not stop.wait(SLOT / 10):
            episode, step = clock.step_of(clock.place())
            for robot in robots:
                robot.act(episode, step, 10**30)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        (played,) = world.play(task, [robot._path for robot in robots], SLOT, 1)
        assert played.absent == AGENTS * HORIZON
    finally:
        stop.set()
        thread.join(5)
        for robot in robots:
            robot.close()


def test_one_process_works_on_a_bundle(tmp_path):
    with alone(tmp_path), pytest.raises(BadInput, match="another process is at work"), alone(tmp_path):
        pass
