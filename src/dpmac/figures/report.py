"""One page about a folder of results that needs no network: verdicts first, then the evidence."""

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpmac.experiments import METHODS, PAPER_BUDGETS, PROFILES, TASKS, Cell, Figure
from dpmac.figures import catalogue, claims, explorer, extras, frontier, plots
from dpmac.figures.claims import Finding, Judgement
from dpmac.figures.page import CSS, JS
from dpmac.figures.plots import Panel
from dpmac.results.records import Results

SECTIONS = {
    "verdicts": "Verdicts",
    "sensitivity": "How verdicts depend on readings",
    "changes": "Verdicts that changed",
    "explorer": "Explorer",
    "figures": "Figures",
    "profiles": "The paper’s and the release’s settings",
    "distributions": "Over all tasks",
    "sender": "What senders learn",
    "noise": "What messages are worth",
    "ablations": "What the paper did not ask",
    "frontier": "Beyond the paper",
    "privacy": "What ε is true",
    "runs": "How this was made",
}
TONES = {"opposite holds": "contradicted", "no such difference": "difference"}
"""Colours of verdicts, where they are not named after them."""
FINDING_HEAD = ("task", "comparison", "sign", "effect", "95 % interval", "unit", "seeds", "verdict")
FINDING_NUMBERS = (2, 3, 4, 6)


def text(value: Any) -> str:
    """Escaped for a page."""
    return html.escape(str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Iterable[int] = ()) -> str:
    """A table whose cells are HTML already; these columns hold numbers."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[Any]) -> str:
        return "".join(f"<{tag}{' class=number' if k in right else ''}>{cell}</{tag}>" for k, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table></div>"


def show(panel: Panel, kind: str = "") -> str:
    """A picture with what hovering needs."""
    hover = f" data-hover='{html.escape(json.dumps(panel.hover), quote=True)}'" if panel.hover else ""
    return f'<div class="panel {kind}"{hover}>{panel.svg}</div>'


def pill(verdict: str) -> str:
    return f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}</span>'


# Verdicts -------------------------------------------------------------------------------------------------------------


def verdict_section(judgements: list[Judgement]) -> str:
    """How many sentences hold, and each of them with its evidence."""
    tally = "".join(
        f'<button class="{verdict.replace(" ", "-")}" aria-pressed=false><b>{count}</b>{verdict}</button>'
        for verdict, count in claims.counts(judgements).items()
        if count
    )
    groups: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        groups.setdefault(judgement.claim.section, []).append(judgement)
    lists = "".join(f"<h3>{text(name)}</h3>" + "".join(map(claim_entry, group)) for name, group in groups.items())
    rules = text((claims.__doc__ or "").split("\n", 2)[2].strip())
    return (
        f"<div class=tally>{tally}</div><p>The sentences are the paper's. Open one to see what was compared. Bars are "
        "95 % intervals of the effect; the shaded band is the margin of equivalence, where the rule has one.</p>"
        f"<details><summary>How a verdict is reached</summary><pre>{rules}</pre></details>{lists}"
    )


def sensitivity_section(results: Results) -> str:
    """How the count of verdicts moves with margins and readings."""
    shifts = claims.sensitivity(results)
    rows = [
        (text(name), *shift.counts.values(), str(len(shift.moved)), text(", ".join(shift.moved)))
        for name, shift in shifts.items()
    ]
    head = ("reading", *claims.counts([]), "moved", "sentences whose verdict is another than as fixed")
    same = claims.robust(results)
    firm = ", ".join(f"{verdict} {count}" for verdict, count in claims.counts(same).items() if count)
    names = {judgement.claim.name for judgement in same}
    partly = "".join(
        f" The reading “{text(name)}” has the runs for {len(shift.tested)} of all sentences, and for "
        f"{len(names & {*shift.tested})} of these."
        for name, shift in shifts.items()
        if claims.READINGS[name].variant
    )
    return (
        "<p>Margins and readings stand in the code. They changed after the runs of version 0.1 were known. This is how "
        "many sentences would have had each verdict under others, one change at a time. Intervals are not corrected "
        "for the number of comparisons; those of 99 % show which verdicts rest on that.</p>"
        + table(head, rows, range(1, len(head) - 1))
        + f"<p>{len(same)} tested sentences have the same verdict under every reading that tests them"
        + f"{': ' * bool(firm)}{firm}.{partly}</p>"
    )


def change_section(results: Results, before: Results | None) -> str:
    """Which verdicts other results do not share, and whose runs make the difference."""
    found = claims.changes(results, before) if before is not None else []
    rows = [
        (text(one.judgement.claim.sentence), pill(one.before), pill(one.judgement.verdict), text(changed_by(one)))
        for one in found
    ]
    words = (
        "<p>Sentences with another verdict by the earlier results, and the runs of which the earlier ones alone would "
        "bring that verdict back.</p>"
    )
    return words + table(("sentence", "before", "now", "because of"), rows) if rows else ""


def changed_by(change: claims.Change) -> str:
    """Whose runs change a verdict: `I2C on CCN`."""
    return ", ".join(f"{METHODS[method][0]} on {task.upper()}" for task, method in change.by) or "several together"


def claim_entry(judgement: Judgement) -> str:
    """A sentence, its verdict and its parts."""
    rows = [finding_row(finding) for finding in judgement.findings]
    kind = judgement.verdict.replace(" ", "-")
    return (
        f'<details class="claim {kind}"><summary>{pill(judgement.verdict)}'
        f"<span>“{text(judgement.claim.sentence)}” <small class=faint>{judgement.signs}</small></span>"
        f"{forest(judgement.findings)}</summary>"
        f"{table(FINDING_HEAD, rows, FINDING_NUMBERS)}</details>"
    )


def side(series: Any) -> str:
    """One side of a comparison in words."""
    name = catalogue.label(series.method, series.budget) + (f", {series.variant}" if series.variant else "")
    return f"{name}, scored at {catalogue.budget_label(series.at)}" if series.at else name


def finding_row(finding: Finding) -> list[str]:
    part, effect = finding.part, finding.effect
    shown = (lambda value: f"{value:+.2f}") if not finding.margin else (lambda value: f"{100 * value:+.1f} %")
    what = {"curve": " (mean over training)", "learned_deviation": " (learned deviation)", "epsilon": " (claimed ε)"}
    rule = {"loss": "loses more than", "information": "tells more than"}.get(part.measure, part.rule)
    words = f"{text(side(part.first))} <b>{rule}</b> {text(side(part.second))}{what.get(part.measure, '')}"
    if part.rule == "kept":
        words = f"{text(side(part.first))}: the claimed ε is <b>kept</b>"
    if finding.verdict == "not tested":
        return [part.task.upper(), words, "", "", "", "", "0", pill("not tested")]
    return [
        part.task.upper(),
        words,
        finding.sign,
        shown(effect.value),
        f"[{shown(effect.low)}, {shown(effect.high)}]",
        finding.unit,
        str(finding.seeds),
        pill(finding.verdict),
    ]


def forest(findings: Sequence[Finding], reach: float = 10.0) -> str:
    """Intervals of all parts on one line each, in units of their margin up to ten of them; what lies beyond is cut off
    there. Powers of two and shares of a gain, which have none, are drawn without its band, on a scale where ±1 is three
    margins."""
    tested = [finding for finding in findings if finding.verdict != "not tested"]
    height = 8 * max(len(tested), 1) + 4

    def place(value: float) -> float:
        return round(95 + 93 * float(np.clip(value / reach, -1, 1)), 1)

    band = f'<rect x="{place(-1)}" width="{place(1) - place(-1):.1f}" height="8" fill="currentColor" opacity="0.12" '
    lines = [f'{band}y="{2 + 8 * row}"/>' for row, finding in enumerate(tested) if finding.margin]
    lines.append(zero(height))
    for row, finding in enumerate(tested):
        y, tone = 6 + 8 * row, f"var(--{TONES.get(finding.verdict, finding.verdict)})"
        value, low, high = (place(number / (finding.margin or 1 / 3)) for number in finding.effect)
        lines.append(f'<path d="M{low} {y}H{high}" stroke="{tone}" stroke-width="3" opacity="0.55"/>')
        lines.append(f'<circle cx="{value}" cy="{y}" r="2.6" fill="{tone}"/>')
    return f'<svg viewBox="0 0 190 {height}" role="img" aria-label="effects">{"".join(lines)}</svg>'


def zero(height: float) -> str:
    return f'<path d="M95 0V{height}" stroke="currentColor" stroke-width="0.7" opacity="0.6"/>'


# Figures --------------------------------------------------------------------------------------------------------------


def figure_section(results: Results) -> str:
    """The paper's nine figures."""
    choice = (
        "<div class=choice><button data-choose=deviation aria-pressed=true>mean ± standard deviation</button>"
        "<button data-choose=interval aria-pressed=false>interquartile mean, 95 % interval</button></div>"
    )
    few = {record.config.training.evaluation_episodes for record in results.runs.values()} == {32}
    seen = (
        "Curves were scored on 32 starts, the same at every point, so their level differs from that of the final "
        "returns."
        if few
        else "Points of a curve take turns through the same common starts."
    )
    parts = [
        "<p>Above, learning curves over seeds between the random and the scripted policy; below, final returns on "
        f"common starts: every seed, the interquartile mean and its bootstrap interval. {seen} Hover for "
        "numbers.</p>",
        choice,
    ]
    drawn = figures_of(results)
    return "".join([*parts, drawn]) if drawn else ""


def figures_of(results: Results, variant: str = "") -> str:
    """The paper's figures of the plain runs or of a profile, a panel for each task."""
    parts = []
    for name, figure in catalogue.available(results, variant).items():
        key, mark = (
            legend(*drawn_in(results, figure, variant)),
            "-".join(["figure", *([variant] if variant else []), name]),
        )
        parts.append(f'<h3 id="{mark}">{text(figure.title)}</h3>{key}<div class=panels>')
        for task in catalogue.tasks_of(results, variant):
            if plots.rows_of(results, task, figure.series, variant):
                parts += [
                    show(plots.panel(results, task, figure, spread, variant), spread)
                    for spread in ("deviation", "interval")
                ]
        parts.append("</div>")
    return "".join(parts)


def profile_section(results: Results) -> str:
    """For each profile that has runs: the sentences that they can judge, beside the plain verdicts, and its figures."""
    parts = []
    plain = {judgement.claim.name: judgement for judgement in claims.judge(results)}
    for profile in catalogue.profiles_of(results):
        every = claims.judge(results, claims.Reading(variant=profile))
        judged = [judgement for judgement in every if judgement.tested]
        rows = [
            (
                text(judgement.claim.sentence),
                pill(plain[judgement.claim.name].verdict),
                pill(judgement.verdict),
                f"<span class=whole>{judgement.signs}</span>",
            )
            for judgement in judged
        ]
        findings = dict.fromkeys(finding for judgement in judged for finding in judgement.findings)
        runs = sum(catalogue.variant_of(record) == profile for record in results.runs.values())
        parts.append(
            f"<h3>Profile {profile}: {text(PROFILES[profile])}</h3><p>{runs} runs. They test {len(judged)} of the "
            f"{len(every)} sentences.</p>{lacking(results, profile)}"
        )
        if judged:
            parts.append(table(("sentence", "plain runs", f"profile {profile}", "signs"), rows))
            parts.append("<details><summary>What was compared</summary>")
            parts.append(table(FINDING_HEAD, [finding_row(finding) for finding in findings], FINDING_NUMBERS))
            parts.append("</details>")
        parts.append(figures_of(results, profile))
    return "".join(parts)


def drawn_in(results: Results, figure: Figure, variant: str = "") -> tuple[list[str], list[str]]:
    """Names and colours of those series of a figure that some task has runs of."""
    there = {
        series
        for series in figure.series
        if any(catalogue.runs(results, Cell(task, *series, variant)) for task in catalogue.tasks_of(results))
    }
    pairs = zip(figure.series, plots.colours(figure.series), strict=True)
    kept = [(catalogue.label(*series), colour) for series, colour in pairs if series in there]
    return [name for name, _ in kept], [colour for _, colour in kept]


def legend(names: Iterable[str], colours: Iterable[str]) -> str:
    """Names with their colours."""
    items = (
        f'<span><span class=swatch style="background:{colour}"></span> {text(name)}</span>'
        for name, colour in zip(names, colours, strict=True)
    )
    return f"<div class=legend>{''.join(items)}</div>"


def distribution_section(results: Results) -> str:
    """Performance profiles and probabilities of improvement."""
    found = [extras.profile_panel(results, budget) for budget in ("free", "step-1", "step-0.1", "episode-1")]
    rows = [
        (
            text(catalogue.budget_label(budget)),
            text(METHODS[other][0]),
            f"{estimate.value:.2f}",
            f"[{estimate.low:.2f}, {estimate.high:.2f}]",
        )
        for budget, other, estimate in extras.improvements(results)
    ]
    if not rows and not any(found):
        return ""
    methods = [method for method in METHODS if any(record.config.method == method for record in results.runs.values())]
    key = legend([METHODS[method][0] for method in methods], [plots.METHOD_COLOURS[method] for method in methods])
    return (
        f"{key}<div class=panels>{''.join(show(panel) for panel in found if panel)}</div>"
        "<h3>How likely a run of DPMAC scores above one of another method</h3>"
        + table(("budget", "than", "probability", "95 % interval"), rows, (2, 3))
    )


def sender_section(results: Results) -> str:
    """What senders do over σ and over training."""
    tasks = catalogue.tasks_of(results)
    levels = {"free": "free", "1": "step ε = 1", "0.1": "step ε = 0.1", "0.01": "step ε = 0.01"}
    budgets = legend(levels.values(), [plots.EPSILON_COLOURS[level] for level in levels])
    parts = [legend([task.upper() for task in tasks], [plots.TASK_COLOURS[task] for task in tasks])]
    for method in ("dpmac", "tarmac", "i2c"):
        over = [extras.sender_panel(results, method, metric) for metric in extras.SENDER]
        if any(over):
            parts.append(f"<h3>{METHODS[method][0]}, at the end of training</h3><div class=panels>")
            parts += [show(panel) for panel in over if panel] + ["</div>"]
        grown = [extras.training_panel(results, task, method, metric) for metric in extras.SENDER for task in tasks]
        if any(grown):
            parts.append(f"<details><summary>{METHODS[method][0]}, over training</summary>{budgets}<div class=panels>")
            parts += [show(panel) for panel in grown if panel] + ["</div></details>"]
    return "".join(parts) if parts[1:] else ""


def noise_section(results: Results) -> str:
    """What a message adds to what is seen, and teams at the noise of others."""
    found = [extras.cross_panel(results, task) for task in catalogue.tasks_of(results)]
    rows = [
        (task.upper(), text(catalogue.label(method, budget)), f"{alone:.3f}", f"{told:.3f}", f"{told - alone:+.3f}")
        for task, method, budget, alone, told in catalogue.information_rows(results)
    ]
    if not rows and not any(found):
        return ""
    head = ("task", "team", "from its own observation", "with messages", "difference")
    return (
        "<h3>What an agent can tell of another’s observation</h3>"
        "<p>Share of the variance of what the sender saw one step before that a receiver can explain linearly, on "
        "episodes that the fit has not seen, mean over seeds; with messages: the last one and the mean of all so far, "
        "as they left the sender.</p>"
        + table(head, rows, (2, 3, 4))
        + "<h3>DPMAC’s teams, trained at one noise and scored at another</h3>"
        "<p>A row whose numbers do not change is a team that does not need its messages.</p>"
        f"<div class=panels>{''.join(show(panel) for panel in found if panel)}</div>"
    )


def ablation_section(results: Results) -> str:
    """What variants change, each beside the plain runs."""
    found = extras.ablation_panels(results)
    parts = (f"<div><h3>{text(name)}</h3><p>{text(words)}</p>{show(panel)}</div>" for name, words, panel in found)
    return f"<div class=panels>{''.join(parts)}</div>" if found else ""


def task_title(task: str) -> str:
    return f"{task.upper()}: {TASKS[task]}" if task in TASKS else task


def frontier_section(frontiers: Sequence[dict[str, Any]]) -> str:
    """Return against exact ε for every channel and schedule, task by task."""
    parts = []
    for found in frontiers:
        parts.append(f"<h3>{text(task_title(found['task']))}</h3>{show(frontier.panel(found), 'broad')}")
        parts.append(f"<p>Scored {text(frontier.scored(found))}.</p>")
        for head, rows in frontier.tables(found):
            cells = [[text(cell) for cell in row] for row in rows]
            parts.append(table(head, cells, range(0 if head[0] == "ε" else 1, len(head))))
    words = (
        "<p>Channels and schedules at the same exact budget of a whole episode, trained by one recipe; what free "
        "messages and silence earn; and what agents earn who are told each other’s secrets once through randomised "
        "response and lose nothing of it.</p>"
    )
    return words + "".join(parts) if parts else ""


def privacy_section(results: Results) -> str:
    """Each σ's claimed ε beside the exact one."""
    rows = [
        (
            str(row["task"]).upper(),
            text(row["budget"]),
            row["accountant"],
            f"{row['claimed']:g}",
            f"{row['sigma']:.4g}",
            f"{row['message']:.3g}",
            f"{row['episode']:.3g}",
            f"<span class='verdict {'holds' if row['valid'] == 'true' else 'contradicted'}'>{row['valid']}</span>",
        )
        for row in catalogue.privacy_rows(results)
    ]
    if not rows:
        return ""
    head = ("task", "budget", "accountant", "claimed ε", "σ", "exact ε of a message", "exact ε of an episode", "claim")
    return (
        "<p>δ = 1e-4, messages clipped to norm 0.5, one broadcast a step, as DPMAC sends them. TarMAC and I2C have "
        "the same σ at the receiver, as in the paper, where it protects nothing from the receiver.</p>"
        + table(head, rows, (3, 4, 5, 6))
    )


# The rest -------------------------------------------------------------------------------------------------------------


def run_section(results: Results) -> str:
    """Commands, hardware, versions and times."""
    commands = "\n".join(dict.fromkeys(item["command"] for item in results.slices))
    rows = [
        (
            f"<span class=whole>{text(item.get('date', ''))}</span>",
            f"<span class=whole>{text(item.get('device', ''))}</span>",
            text(item.get("cores", "")),
            f"{item['seconds']:,.0f}",
            text(item.get("runs", "")),
            text(", ".join(f"{name} {version}" for name, version in item.get("versions", {}).items())),
        )
        for item in results.slices
    ]
    populations = {}
    for record in results.runs.values():
        facts = record.final["population"]
        populations[facts["name"]] = (
            text(facts["name"]),
            facts["runs"],
            text(facts.get("device", "")),
            f"{facts.get('train_seconds', 0):,.0f}",
            f"{facts.get('compile_seconds', 0):,.0f}",
        )
    names = ("population", "runs", "device", "seconds of training", "seconds until compiled (beside training)")
    return (
        f"<pre>{text(commands)}</pre>"
        + table(("date", "planned on", "cores", "seconds", "runs trained", "versions"), rows, (2, 3, 4))
        + "<details open><summary>Populations, and what trained them</summary>"
        + f"{table(names, populations.values(), (1, 3, 4))}</details>"
    )


def headline(results: Results) -> str:
    """What the page is about, in a sentence; runs of frontiers, which have recipes of their own, stand apart."""
    everything = list(results.runs.values())
    runs = catalogue.reproduced(results) or everything
    steps = {int(record.steps[-1]) for record in runs}
    updates = {record.updates_per_episode for record in runs if not np.isnan(record.updates_per_episode)}
    seconds = sum(item["seconds"] for item in results.slices)
    parts = (
        f"{len(runs)} runs on {', '.join(TASKS[task] for task in catalogue.tasks_of(results))}",
        f"{len({record.seed for record in runs})} seeds",
        f"{' or '.join(f'{step:,}' for step in sorted(steps))} steps each",
        *([f"{' or '.join(f'{rate:g}' for rate in sorted(updates))} updates per episode"] if updates else []),
        *([f"{len(everything) - len(runs)} more runs of frontiers"] if len(runs) < len(everything) else []),
        f"{seconds / 60:.1f} minutes in all.",
    )
    return "; ".join(parts)


def lacking(results: Results, variant: str = "") -> str:
    """What the paper's figures need and no finished run gives, in a sentence; nothing where all is there."""
    by_method: dict[str, dict[str, list[str]]] = {}
    for cell in catalogue.missing(results, variant):
        by_method.setdefault(cell.method, {}).setdefault(cell.task, []).append(cell.budget)
    parts = []
    for method, by_task in by_method.items():
        whole = [task for task in by_task if not any_runs(results, task, method, variant)]
        if whole:
            parts.append(f"{METHODS[method][0]} on {', '.join(task.upper() for task in whole)}")
        for task, budgets in by_task.items():
            if task not in whole:
                names = ", ".join(map(catalogue.budget_label, budgets))
                parts.append(f"{METHODS[method][0]} on {task.upper()} at {names}")
    if not parts:
        return ""
    mark = f"missing-{variant}" if variant else "missing"
    return f"<p id={mark}><b>Not finished yet:</b> {text('; '.join(parts))}. What depends on it is “not tested”.</p>"


def any_runs(results: Results, task: str, method: str, variant: str = "") -> bool:
    """Whether a method has plain runs, or those of a profile, on a task."""
    return any(catalogue.runs(results, Cell(task, method, budget, variant)) for budget in PAPER_BUDGETS)


def page(results: Results, frontiers: Sequence[dict[str, Any]] = (), before: Results | None = None) -> str:
    """The whole page, on demand with what has changed since other results."""
    sections = {
        "verdicts": verdict_section(claims.judge(results)),
        "sensitivity": sensitivity_section(results),
        "changes": change_section(results, before),
        "explorer": explorer.section(results),
        "figures": figure_section(results),
        "profiles": profile_section(results),
        "distributions": distribution_section(results),
        "sender": sender_section(results),
        "noise": noise_section(results),
        "ablations": ablation_section(results),
        "frontier": frontier_section(frontiers),
        "privacy": privacy_section(results),
        "runs": run_section(results),
    }
    sections = {name: body for name, body in sections.items() if body}
    nav = "".join(f"<a href=#{name}>{SECTIONS[name]}</a>" for name in sections)
    body = "".join(f"<section id={name}><h2>{SECTIONS[name]}</h2>{part}</section>" for name, part in sections.items())
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width, "
        "initial-scale=1'><link rel=icon href='data:,'><title>DPMAC: the paper's claims, examined</title>"
        f"<style>{CSS}{explorer.file('explorer.css')}</style></head><body data-spread=deviation><header>"
        f"<h1>DPMAC: the paper’s claims, examined</h1><p class=faint>{text(headline(results))}</p>"
        f"{lacking(results)}</header><nav>{nav}</nav><main>{body}</main>"
        f"<div id=tip hidden></div><script>{JS}</script>"
        f"<script type=module>{explorer.file('explorer.js')}</script></body></html>"
    )


def write(
    results: Results, path: Path, frontiers: Sequence[dict[str, Any]] = (), before: Results | None = None
) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(results, frontiers, before), encoding="utf-8")
