"""The report's page, looked at in a real browser: wide and narrow, light and dark."""

import json
import re

import made
import numpy as np
import pytest
from browsing import Page

from dpmac import experiments
from dpmac.cli import main
from dpmac.cli.reproduce import draw
from dpmac.experiments import FIGURES
from dpmac.figures import catalogue, claims, extras, plots, report
from dpmac.results import records


def planted(cell):
    share = 0.9 if cell.task == "ccn" and cell.budget in ("free", "step-1") and cell.method == "dpmac" else 0.75
    random, scripted = made.REFERENCES[cell.task]
    return random + share * (scripted - random)


@pytest.fixture(scope="module")
def results():
    return made.results(planted, cells=made.all_cells(True), episodes=True, evaluations=8)


@pytest.fixture(scope="module")
def path(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(results, path)
    return path


@pytest.fixture(scope="module", params=[(1360, "light"), (1360, "dark"), (380, "light"), (380, "dark")], ids=str)
def loaded(request, browser, path):
    return Page(browser, path, *request.param), request.param


def test_page_loads_without_an_error_and_asks_nobody_for_anything(loaded):
    page, _ = loaded
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_nothing_is_wider_than_the_screen(loaded):
    page, (width, _) = loaded
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_text_stands_out_in_light_and_dark(loaded):
    page, (_, scheme) = loaded
    ink, paper = page.colour("color"), page.colour("backgroundColor")
    assert (paper - ink > 150) if scheme == "light" else (ink - paper > 150)
    tick = page.page.locator("#figures svg text").first
    fill = tick.evaluate("node => getComputedStyle(node).fill")
    assert sum(map(int, re.findall(r"\d+", fill)[:3])) / 3 == pytest.approx(ink, abs=2)


def test_verdicts_come_first_and_can_be_filtered(loaded, results):
    page, _ = loaded
    order = page.page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    assert order[0] == "verdicts"
    counts = claims.counts(claims.judge(results))
    shown = page.page.locator(".claim:visible")
    assert shown.count() == sum(counts.values())
    page.page.locator(".tally button.holds").click()
    assert shown.count() == counts["holds"]
    page.page.locator(".tally button.holds").click()
    assert shown.count() == sum(counts.values())


def test_complete_results_lack_nothing(loaded):
    page, _ = loaded
    assert page.page.locator("#missing").count() == 0


def test_every_figure_has_a_picture_of_every_task(loaded):
    page, _ = loaded
    assert page.page.locator("#figures h3").count() == len(FIGURES)
    pictures = page.page.locator("#figures .panel:visible svg")
    assert pictures.count() == 3 * len(FIGURES)
    for place in range(pictures.count()):
        box = pictures.nth(place).bounding_box()
        assert box["width"] > 250
        assert box["height"] > 150


def test_hovering_shows_numbers(loaded):
    page, _ = loaded
    picture = page.page.locator("#figures .panel:visible svg").nth(1)
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    page.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.3 * box["height"])
    tip = page.page.locator("#tip")
    assert tip.is_visible()
    assert "steps" in tip.inner_text()
    assert "DPMAC" in tip.inner_text()
    page.page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_spread_can_be_chosen(loaded):
    page, _ = loaded
    page.page.get_by_role("button", name="interquartile mean").click()
    assert page.page.locator("#figures .interval:visible").count() == 3 * len(FIGURES)
    assert page.page.locator("#figures .deviation:visible").count() == 0
    page.page.get_by_role("button", name="mean ± standard deviation").click()


def test_exact_privacy_stands_beside_the_claim(loaded):
    page, _ = loaded
    row = page.page.locator("#privacy tr", has_text="CCN").filter(has_text="step ε = 1").first.inner_text()
    assert all(number in row for number in ("0.6596", "6.29", "56.1", "not true"))


def test_report_command_writes_page_figures_and_scores(results, tmp_path, capsys):
    few = {cell.run(seed) for cell in experiments.cells_of("step-dpmac", ["ccn"]) for seed in range(5)}
    small = records.Results({name: run for name, run in results.runs.items() if name in few}, results.slices)
    records.pack(small, tmp_path / "results" / "all.json.gz")
    target = tmp_path / "page.html"
    arguments = ["report", str(tmp_path / "results"), "--out", str(target), "--figures", str(tmp_path / "figures")]
    assert main([*arguments, "--marl-eval", str(tmp_path / "scores.json"), "--json"]) == 0
    with_runs = {"nonprivate", "step-0.1", "step-1.0", "step-dpmac", "episode-dpmac"}
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == with_runs
    assert target.read_text().count("<section") >= 8
    printed = json.loads(capsys.readouterr().out)
    assert (printed["runs"], printed["frontier_runs"]) == (len(few), 0)
    assert printed["readings"]["as fixed"]["tested"] < len(claims.CLAIMS) == sum(printed["verdicts"].values())
    assert (tmp_path / "scores.json").stat().st_size > 1000


def test_results_are_put_beside_others_pair_by_pair(results):
    same = catalogue.order(results, results)
    assert set(same) == {"cn", "ccn", "pp"}
    assert same["ccn"]["pairs"] > 0
    assert all(found["same"] == found["pairs"] and not found["otherwise"] for found in same.values())

    def swapped(name):  # free messages and silence have changed places
        return name.replace("dpmac-free", "?").replace("silent-free", "dpmac-free").replace("?", "silent-free")

    turned = records.Results({swapped(name): run for name, run in results.runs.items()}, results.slices)
    assert ["dpmac-free", "silent-free"] in catalogue.order(turned, results)["ccn"]["otherwise"]


def test_the_page_says_which_verdicts_changed_and_because_of_which_runs(results):
    def fallen(run):
        worse = run.config.task == "ccn" and run.config.method == "i2c"
        return run._replace(final=run.final | {"return_mean": run.final_return - 30.0}) if worse else run

    before = records.Results({name: fallen(run) for name, run in results.runs.items()}, results.slices)
    section = report.change_section(results, before)
    assert "I2C on CCN" in section
    assert report.change_section(results, None) == report.change_section(results, results) == ""


ALLOWED = ("nonprivate", "step-1.0", "step-dpmac", "tarmac", "i2c")


@pytest.fixture(scope="module")
def released():
    """A folder that holds runs of a profile, those of two figures, which allow three others with two curves."""
    cells = [cell for name in ("nonprivate", "step-1.0") for cell in experiments.cells_of(name, ["ccn"], "release")]
    return made.results(planted, cells=cells, evaluations=8)


def test_runs_of_a_profile_are_drawn_and_judged(released):
    page = report.page(released)
    assert "Not finished yet:</b> DPMAC on CN, PP" in page  # of the profile
    assert "id=missing>" not in page  # of the plain runs, which nobody asked for
    assert re.findall(r"<section id=(\w+)>", page) == ["verdicts", "sensitivity", "explorer", "profiles", "runs"]
    section = page.partition("<section id=profiles>")[2].partition("</section>")[0]
    for name in ALLOWED:
        assert f'id="figure-release-{name}"' in section
    assert section.count('class="panel deviation"') == len(ALLOWED)
    assert "“not tested”" in section
    judged = {one.claim.name for one in claims.judge(released, claims.Reading(variant="release")) if one.tested}
    assert judged == {"free-ccn", "baselines-like-maddpg", "large-margin-ccn", "dpmac-1-ccn"}
    assert f"They test 4 of the {len(claims.CLAIMS)} sentences" in section


def test_verdicts_of_a_profile_stand_beside_the_plain_ones(results):
    section = report.profile_section(results)  # `often` and `pace` are runs of the profile paper
    assert 'id="figure-paper-step-dpmac"' in section
    plain, there = (
        {one.claim.name: one for one in claims.judge(results, reading)}["cn-close"]
        for reading in (claims.FIXED, claims.Reading(variant="paper"))
    )
    row = section[section.index(report.text(plain.claim.sentence)) :].partition("</tr>")[0]
    assert re.findall(r'class="verdict [^"]*">([^<]*)<', row) == [plain.verdict, there.verdict]
    assert report.profile_section(made.results(planted, cells=made.all_cells()[:2])) == ""


def test_figures_of_a_profile_have_its_name(released, tmp_path):
    draw(tmp_path, released)
    assert {path.name for path in tmp_path.iterdir()} == {f"release-{name}.png" for name in ALLOWED}


def test_a_band_stands_only_behind_intervals_whose_rule_has_a_margin(results):
    found = {judgement.claim.name: judgement.findings for judgement in claims.judge(results)}
    assert report.forest(found["free-ccn"]).count("<rect") == len(found["free-ccn"]) == 3
    assert "<rect" not in report.forest(found["rigorous"])


def test_a_folder_without_results_is_bad_input(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "dpmac reproduce" in capsys.readouterr().err


def test_text_of_a_page_is_escaped():
    assert report.text("<script>") == "&lt;script&gt;"


def test_no_curve_leaves_its_panel_above_and_no_row_stands_twice(results):
    """Teams may earn more than the script, as those of the paper do on PP."""

    def better(run):
        gain = np.linspace(0, 30, len(run.steps))
        return run._replace(metrics=run.metrics | {"return": run.metrics["return"] + gain})

    lifted = records.Results({name: better(run) for name, run in results.runs.items()}, results.slices)
    figure = FIGURES["nonprivate"]
    for task in ("cn", "ccn", "pp"):
        box = plots.panel(lifted, task, figure, "deviation").hover[0]
        assert max(max(curve["high"]) for curve in box["series"]) < max(box["y"])
    for name in ("pace", "stringent", "deterministic"):
        cells = [cell for cell in experiments.ABLATIONS[name] if cell.task == experiments.ABLATIONS[name][0].task]
        labels = [label for label, _, _ in extras.paired_rows(results, cells)]
        assert len(labels) == len(set(labels)) > 1, name
        assert "plain" in labels[0]
