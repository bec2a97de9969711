"""The report's explorer on results of which half are missing: what it says, and how it behaves in a real browser."""

import dataclasses
import re

import made
import numpy as np
import pytest
from browsing import Page

from dpmac import experiments, privacy
from dpmac.config import Channel, Release
from dpmac.experiments import Cell
from dpmac.figures import explorer, report
from dpmac.results.records import Results

CELLS = [
    *experiments.cells("ccn", "dpmac", ("free", "step-1", "step-0.01")),
    *experiments.cells("ccn", "i2c", ("free", "step-1")),
    *experiments.cells("pp", "dpmac", ("step-1", "episode-1")),
    Cell("ccn", "silent"),
    Cell("pp", "silent"),
]
HEARD = {"secret": "target", "accuracy": 0.5, "chance": 1 / 3, "cap": 0.576, "verdict": "within", "step": 0, "agent": 0}


def symbols():
    """A run whose agents say one of three symbols once, and are listened to by an eavesdropper."""
    cell, channel = Cell("ccn", "dpmac", "exact-episode-1"), Channel("response", period=0)
    plain = made.record(cell, 0, -19.0, 0.1, 8)
    claims = privacy.claim(plain.config.budgets[0], channel, 2, 25)
    one = made.episode(2, 25) | {"noise": None, "released": [[[0, 1, 0], [0, 0, 1]]] * 25}
    return plain._replace(
        name="ccn-dpmac-response-once-exact-episode-1-seed-0",
        config=dataclasses.replace(plain.config, channel=channel),
        privacy={"claims": {"1": claims}},
        final=plain.final | {"eavesdropper": [HEARD, HEARD | {"agent": 1, "accuracy": 0.54}]},
        episodes=[one],
    )


@pytest.fixture(scope="module")
def results():
    some = made.results(lambda cell: -30.0, cells=CELLS, seeds=2, evaluations=8, episodes=True)
    runs = {}
    for place, (name, record) in enumerate(some.runs.items()):  # each walks its own way and earns its own reward
        own = {"places": lambda x, k=place: 0.9**k * x, "rewards": lambda x, k=place: x - k}
        episodes = [e | {n: change(np.array(e[n])).tolist() for n, change in own.items()} for e in record.episodes]
        runs[name] = record._replace(episodes=episodes)
    # Noise of the size that σ has: at 64 the digits that are saved still tell a message, at 640 they do not.
    for name, size in (("ccn-dpmac-step-1", 1.0), ("ccn-dpmac-step-0.01", 640.0)):
        record = runs[f"{name}-seed-0"]
        chance = np.random.default_rng(0)
        signal = np.repeat(chance.normal(size=(1, 2, 8)), 25, axis=0) / 8
        noise = size * chance.normal(size=(25, 2, 8))
        one = record.episodes[0] | {"released": explorer.short(signal + noise), "noise": explorer.short(noise)}
        runs[record.name] = record._replace(episodes=[one, record.episodes[0]])
    runs["pp-dpmac-episode-1-seed-0"] = runs["pp-dpmac-episode-1-seed-0"]._replace(episodes=[])
    return Results(runs | {symbols().name: symbols()}, some.slices)


@pytest.fixture(scope="module")
def path(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "report.html"
    report.write(results, path)
    return path


class Explorer(Page):
    """The explorer on a page of its own."""

    def find(self, selector):
        return self.page.locator(f".explorer {selector}")

    def choose(self, **choices):
        for name, value in choices.items():
            self.find(f"[name={name}]").select_option(value)

    def told(self):
        return self.find(".told").inner_text()

    def picture(self, canvas=".stage"):
        return self.find(canvas).evaluate("canvas => canvas.toDataURL()")

    def seen(self):
        """All that a choice should change."""
        statement = self.find(".statement").inner_text()
        return self.find(".curve").get_attribute("aria-label"), statement, self.picture(), self.told()


@pytest.fixture(scope="module", params=[(1280, "light"), (360, "dark")], ids=str)
def opened(request, browser, path):
    return Explorer(browser, path, *request.param), request.param


# What it says ---------------------------------------------------------------------------------------------------------


def test_statement_gives_the_claim_and_what_is_true(results):
    told = {key: explorer.statement(runs[0]) for key, runs in explorer.groups(results).items()}
    untrue = told["ccn", "dpmac", "step-1"]
    assert untrue["headline"] == "The claim is not true."
    words = " ".join(untrue["lines"])
    assert "ε = 1 for one message at δ = 0.0001, σ = 0.6596" in words
    assert "ε = 6.29 for one message, ε = 56.1 for a whole episode of 25 messages" in words
    assert told["ccn", "dpmac-response-once", "exact-episode-1"]["headline"] == "The claim is true."
    assert "no finite ε" in " ".join(told["ccn", "i2c", "step-1"]["lines"])
    assert "too late" in told["ccn", "i2c", "step-1"]["headline"]
    assert "leave as they are" in told["ccn", "dpmac", "free"]["headline"]
    assert "Nothing is sent" in told["ccn", "silent", "free"]["headline"]


def test_curve_stands_beside_the_silent_one_that_was_trained_alike(results):
    silent, talking = results.runs["ccn-silent-free-seed-0"], symbols()
    learning = {"discount": 0.7}
    other = silent._replace(
        name="ccn-silent-silent-free-seed-0", config=dataclasses.replace(silent.config, learner_options=learning)
    )
    talking = talking._replace(config=dataclasses.replace(talking.config, learner_options=learning))
    cells = explorer.data_of(Results(results.runs | {one.name: one for one in (other, talking)}, []))["cells"]
    beside = {cell["method"]: cells[cell["silent"]]["method"] for cell in cells if cell["task"] == "ccn"}
    assert beside["dpmac"] == beside["silent"] == "silent"
    assert beside["dpmac-response-once"] == "silent-silent"
    alone = explorer.data_of(Results({talking.name: talking}, []))["cells"]
    assert alone[0]["silent"] is None


def test_agents_with_their_own_budgets_are_told_apart(results):
    record = results.runs["ccn-dpmac-step-1-seed-0"]
    budget = dataclasses.replace(record.config.budgets[0], epsilon=(1.0, 0.1), accountant="exact")
    mixed = record._replace(privacy={"claims": {"1:0.1": privacy.claim(budget, record.config.channel, 2, 25)}})
    words = " ".join(explorer.statement(mixed)["lines"])
    assert "Agent 0. Claimed by exact accounting: ε = 1 " in words
    assert "Agent 1. Claimed by exact accounting: ε = 0.1 " in words


@pytest.mark.parametrize(
    ("channel", "noise"), [(Channel(), 0.66), (Channel(), 6.4), (Channel("code"), 3.0), (Channel(copies=2), 6.4)]
)
def test_cap_of_two_secrets_is_that_of_the_accountant(channel, noise):
    for uses in (1, 7):
        exact = privacy.transcript_accuracy(Release(channel, noise, uses), 2)
        assert explorer.cap_after(channel, noise, uses, 2) == pytest.approx(exact, abs=2e-4)


def test_caps_follow_the_messages(results):
    every, once = results.runs["ccn-dpmac-step-1-seed-0"], symbols()
    growing = explorer.caps(every, 2)
    assert np.all(np.diff(growing) >= 0)
    assert growing[0] == pytest.approx(0.7758, abs=1e-3)
    assert len(set(explorer.caps(once, 3))) == 1
    assert explorer.caps(once, 3)[0] == pytest.approx(0.576, abs=1e-3)
    assert set(explorer.caps(results.runs["ccn-i2c-step-1-seed-0"], 2)) == {1.0}
    assert explorer.caps(results.runs["ccn-silent-free-seed-0"], 2) == []


def test_eavesdroppers_are_counted_and_violations_named():
    (line,) = explorer.heard_sentences(explorer.overheard([symbols(), symbols()]))
    assert "52.0 % of new ones (mean of 4 agents and seeds; at most 54.0 %)" in line
    assert "57.6 % is a bound for every listener, which the best may stay below; none is found above it" in line
    (line,) = explorer.heard_sentences([HEARD, HEARD | {"verdict": "violated"}])
    assert "1 of 2 exceed it" in line
    assert explorer.overheard([symbols()._replace(final={"eavesdropper": [HEARD | {"cap": None}]})]) == []


def test_episode_keeps_first_copy_and_last_round():
    one = made.episode(2, 3) | {"released": [[[[1, 2], [3, 4]]] * 2] * 3, "noise": [[[1, 1]] * 2, [[2, 2]] * 2] * 3}
    kept = explorer.episode_data(one, Channel(rounds=2))
    assert kept["released"][0] == [[1, 2], [1, 2]]
    assert kept["noise"] == [[[2, 2], [2, 2]]] * 3
    assert "actions" not in kept


# In a browser ---------------------------------------------------------------------------------------------------------


def test_page_of_partial_results_is_sound_and_says_what_is_missing(opened):
    page, (width, _) = opened
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    words = page.page.locator("#missing").inner_text()
    assert "TarMAC on CN, CCN, PP" in words
    assert "DPMAC on PP at free, step ε = 0.1" in words
    page.choose(task="ccn")
    assert page.find("option[value=tarmac]").inner_text() == "TarMAC (not trained)"
    assert page.find("option[value=tarmac]").is_disabled()
    assert page.find("option[value=dpmac]").is_enabled()


def test_every_control_has_a_name(opened):
    page, _ = opened
    for label in ("Task", "Method", "Budget", "Example", "Step"):
        assert page.page.locator(".explorer").get_by_label(label, exact=True).count() == 1
    for name in ("previous step", "play", "next step"):
        assert page.page.locator(".explorer").get_by_role("button", name=name, exact=True).count() == 1
    assert page.page.locator(".explorer").get_by_role("img").count() == 4


def test_every_choice_changes_curve_statement_picture_and_words(opened):
    page, _ = opened
    page.choose(task="ccn", method="dpmac", budget="step-1")
    before = page.seen()
    assert "The claim is not true" in before[1]
    for choice in (
        {"budget": "free"},
        {"method": "i2c", "budget": "step-1"},
        {"method": "dpmac-response-once"},
        {"task": "pp"},
    ):
        page.choose(**choice)
        after = page.seen()
        assert [a != b for a, b in zip(before, after, strict=True)] == [True] * 4, choice
        before = after
    assert page.errors == []


def test_a_choice_without_an_episode_says_so(opened):
    page, _ = opened
    page.choose(task="pp", method="dpmac", budget="episode-1")
    assert page.find(".none").is_visible()
    assert not page.find(".stage").is_visible()
    page.choose(budget="step-1")
    assert page.find(".stage").is_visible()


def test_silence_is_told_and_nothing_is_drawn_on_its_way(opened):
    page, _ = opened
    page.choose(task="ccn", method="silent")
    assert page.told().endswith("Nothing is sent.")
    assert "guess blindly" in page.find(".heard").inner_text()
    assert not page.find(".listen").is_visible()


def test_words_split_a_message_and_judge_the_guess_as_saved_numbers_do(opened, results):
    page, _ = opened
    page.choose(task="ccn", method="dpmac", budget="step-1", episode="0")
    episode = results.runs["ccn-dpmac-step-1-seed-0"].episodes[0]
    sent, noise = np.array(episode["released"]), np.array(episode["noise"])
    for t in (0, 11):
        page.find("input").fill(str(t))
        for agent in (0, 1):
            made_by = sent[t, agent] - noise[t, agent]
            signs = np.sum(np.sign(sent[: t + 1, agent].mean(0)) == np.sign((sent - noise)[: t + 1, agent].mean(0)))
            line = page.told().splitlines()[1 + agent]
            assert f"of norm {np.linalg.norm(sent[t, agent]):.2f}, of which" in line
            found = [float(x) for x in re.findall(r"is ([\d.]+) and the noise ([\d.]+);", line)[0]]
            assert found == pytest.approx([np.linalg.norm(made_by), np.linalg.norm(noise[t, agent])], abs=0.006)
            assert f"has {signs} of 8 signs right" in line


def test_what_saved_digits_cannot_tell_is_not_told(opened):
    page, _ = opened
    page.choose(task="ccn", method="dpmac", budget="step-0.01", episode="0")
    assert "cannot be told from the saved digits" in page.told()
    assert "signs right" not in page.told()


def test_symbols_have_the_saved_eavesdropper_and_its_cap(opened):
    page, _ = opened
    page.choose(task="ccn", method="dpmac-response-once")
    assert "Agent 0 sends symbol 1; a listener’s best guess from one message is symbol 1" in page.told()
    assert "with probability 0.58" in page.told()
    assert "52.0 %" in page.find(".heard").inner_text()
    assert "more than 57.6 %" in page.find(".heard").inner_text()
    page.find("[name=on]").click()
    assert "sends nothing new" in page.told()


def test_raw_messages_are_marked(opened):
    page, _ = opened
    page.choose(task="ccn", method="dpmac", budget="step-1")
    assert "nobody but the sender" in page.find(".mark").inner_text()
    page.choose(budget="free")
    assert "as any listener hears them" in page.find(".mark").inner_text()
    page.choose(method="dpmac-response-once")
    assert page.find(".mark").inner_text() == ""


def test_keys_alone_choose_and_play(opened):
    page, _ = opened
    keys = page.page.keyboard
    page.choose(task="ccn", method="dpmac", budget="step-1")
    page.find("[name=budget]").focus()
    keys.press("Home")
    assert page.find("[name=budget]").input_value() == "free"
    assert "leave as they are" in page.find(".headline").inner_text()
    for name in ("episode", "back", "play", "on"):
        keys.press("Tab")
        assert page.page.evaluate("document.activeElement.name") == name
    keys.press("Space")
    assert page.told().startswith("Step 2 of 25")
    keys.press("Tab")
    first = page.picture()
    keys.press("ArrowRight")
    assert page.told().startswith("Step 3 of 25")
    assert page.picture() != first
    assert page.find("input").get_attribute("aria-valuetext") == "step 3 of 25"
    keys.press("End")
    assert page.told().startswith("Step 25 of 25")
    keys.press("Shift+Tab")
    keys.press("Space")
    assert page.told().startswith("Step 25 of 25")
    keys.press("Shift+Tab")
    keys.press("Enter")
    assert page.find("[name=play]").inner_text() == "pause"
    assert page.find(".told").get_attribute("aria-live") == "off"
    page.page.wait_for_function("['1', '2'].includes(document.querySelector('.explorer').dataset.step)")
    keys.press("Enter")
    assert page.find("[name=play]").inner_text() == "play"
    assert page.find(".told").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize(("motion", "moves"), [("no-preference", True), ("reduce", False)])
def test_messages_travel_unless_motion_is_unwanted(browser, path, motion, moves):
    page = Explorer(browser, path, 800, "light", motion)
    before = page.picture()
    page.find("[name=play]").click()
    page.page.wait_for_timeout(200)
    during, step = page.page.evaluate(
        "[document.querySelector('.stage').toDataURL(), document.querySelector('.explorer').dataset.step]"
    )
    assert step == "0"
    assert (during != before) == moves
    page.page.wait_for_function("Number(document.querySelector('.explorer').dataset.step) >= 1")
    page.page.context.close()


def test_colours_follow_the_scheme(opened):
    page, (_, scheme) = opened
    page.choose(task="ccn", method="dpmac", budget="step-1")
    fill = page.find(".curve text").last.evaluate("node => getComputedStyle(node).fill")
    bright = sum(map(int, re.findall(r"\d+", fill)[:3])) / 3
    assert (bright < 90) if scheme == "light" else (bright > 160)
    page.page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    changed = page.picture(".words")
    page.page.emulate_media(color_scheme=scheme)
    assert page.picture(".words") != changed
