"""`dpmac report`: one page about runs, or about a folder of results, and the paper's figures as files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dpmac.cli import emit, parse
from dpmac.cli.reproduce import draw
from dpmac.config import dumps, require


@dataclass(frozen=True)
class Report:
    """Make one self-contained page. For runs of `dpmac train`: curves, returns, the privacy table and the
    configuration. For results of `dpmac reproduce`: verdicts on the paper's claims, an explorer of runs and
    episodes, figures and the privacy table. The page lists missing results. It works without a network."""

    folder: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, or one folder of results: the output of `dpmac reproduce`, or a folder with its exported
    file."""
    out: Path
    """File of the page, NAME.html."""
    figures: Path | None = None
    """Also draw the paper's figures into this folder."""
    marl_eval: Path | None = None
    """Also write all scores into this file, in the schema of marl-eval."""
    against: Path | None = None
    """Also compare with the results in this folder: which verdicts are others, and whose runs make the difference; and
    of the pairs that they separate, how many have the same order here, which shows how well a small scale predicts a
    large one."""
    json: bool = False
    """Print the verdicts as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Report, argv, "dpmac report", "dpmac report results --out report.html --figures figures")
    require(options.out.suffix == ".html", f"the page is named NAME.html, not {options.out}")
    require(len(options.folder) > 0, "name the folder of a run, or of results")
    if all((folder / "config.json").exists() for folder in options.folder):
        runs_page(options)
        return
    require(len(options.folder) == 1, "several folders must all be those of runs")
    (folder,) = options.folder
    from dpmac.figures import catalogue, claims, frontier, report
    from dpmac.results import records, stats, store
    from dpmac.runner.statement import check_records

    def read(folder: Path) -> records.Results:
        found = records.read(folder)
        require(bool(found.runs), f"{folder} holds no run, and no finished results of dpmac reproduce")
        check_records(found)
        return found

    results, before = read(folder), None if options.against is None else read(options.against)
    report.write(results, options.out, frontier.read(folder), before)
    if options.figures is not None:
        draw(options.figures, results)
    if options.marl_eval is not None:
        options.marl_eval.parent.mkdir(parents=True, exist_ok=True)
        store.write_aside(options.marl_eval, dumps(stats.marl_eval(catalogue.algorithms(results))).encode())
    found = claims.judge(results)
    summary = {
        "page": str(options.out),
        "runs": len(catalogue.reproduced(results)),
        "frontier_runs": len(results.runs) - len(catalogue.reproduced(results)),
        "verdicts": claims.counts(found),
        "readings": {
            name: {"verdicts": shift.counts, "tested": len(shift.tested), "moved": shift.moved}
            for name, shift in claims.sensitivity(results).items()
        },
        "robust": [judgement.claim.name for judgement in claims.robust(results)],
        "claims": [claim_data(judgement) for judgement in found],
        "order": {} if before is None else catalogue.order(results, before),
        "changed": []
        if before is None
        else [
            {
                "name": change.judgement.claim.name,
                "before": change.before,
                "now": change.judgement.verdict,
                "because_of": report.changed_by(change),
            }
            for change in claims.changes(results, before)
        ],
    }
    emit(summary, options.json, lambda: text(summary))


def runs_page(options: Report) -> None:
    """The page about ordinary runs, whose statements are those that follow from their configurations."""
    for name in ("figures", "marl_eval", "against"):
        require(getattr(options, name) is None, f"--{name.replace('_', '-')} is for results of dpmac reproduce")
    from dpmac.analysis.evaluate import closing
    from dpmac.figures import run_page

    found = [closing(folder) for folder in options.folder]
    run_page.write(options.folder, options.out)
    emit({"page": str(options.out), "runs": found}, options.json, lambda: f"see {options.out}")


def claim_data(judgement: Any) -> dict[str, Any]:
    """A verdict as plain data."""
    return {
        "name": judgement.claim.name,
        "sentence": judgement.claim.sentence,
        "verdict": judgement.verdict,
        "parts": [
            {
                **finding.part._asdict(),
                "verdict": finding.verdict,
                "effect": finding.effect.value,
                "low": finding.effect.low,
                "high": finding.effect.high,
                "seeds": finding.seeds,
                "sign": finding.sign,
                "unit": finding.unit,
            }
            for finding in judgement.findings
        ],
    }


def text(summary: dict[str, Any]) -> str:
    """The summary for people."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in summary["verdicts"].items() if count)
    lines = [f"{item['verdict']:>18}  {item['sentence']}" for item in summary["claims"]]
    for task, found in summary["order"].items():
        lines += ["", f"{task}: {found['same']} of {found['pairs']} pairs in the same order; otherwise:"]
        lines += [f"  {first} above {second}" for first, second in found["otherwise"]] or ["  none"]
    for change in summary["changed"]:
        lines += ["", f"{change['name']}: {change['before']} before, now {change['now']} ({change['because_of']})"]
    lines.append("")
    for name, reading in summary["readings"].items():
        known = ", ".join(f"{count} {verdict}" for verdict, count in reading["verdicts"].items() if count)
        lines.append(f"{name}: {known}; {len(reading['moved'])} moved")
    more = f" and {summary['frontier_runs']} of frontiers" * bool(summary["frontier_runs"])
    return "\n".join([*lines, "", f"{counts}; {summary['runs']} runs{more}; see {summary['page']}"])
