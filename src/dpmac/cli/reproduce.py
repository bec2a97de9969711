"""`dpmac reproduce`: train every run behind the paper's figures, in slices if asked, and draw them."""

import dataclasses
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dpmac.cli import emit, parse
from dpmac.cli.session import Work, noted, work_through
from dpmac.config import RENAMED_METHODS, require
from dpmac.experiments import METHODS, SCALES, TASKS, Profile, cells_of, populations, run_names, targets

EXAMPLE = "dpmac reproduce all --scale paper --out results --time-limit 540"


@dataclass(frozen=True, kw_only=True)
class Reproduce(Work):
    """Train every run behind the paper's figures, each run once. Finished runs are not trained again; interrupted runs
    continue."""

    figures: tyro.conf.Positional[tuple[str, ...]]
    """all (the default), or some of: nonprivate step-0.1 step-1.0 step-dpmac tarmac i2c episode-0.1 episode-1.0
    episode-dpmac, and of our own ablations: deterministic feedforward exact often narrow early stringent equal
    pace."""
    out: Path
    """Folder for the results."""
    profile: Profile = "default"
    """paper: one update an episode, as in the paper. release: that, and the networks, messages, replay, past sampling
    and starts of the paper's released code. Such runs have their own names."""
    with_ablations: bool = False
    """Also train our own ablations."""
    tasks: tuple[str, ...] = ()
    """Only these tasks of cn, ccn, pp; by default those of the scale."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Only these methods."""
    episodes: int = 0
    """Fresh episodes per iteration; 0: that of the scale, which is 4 for paper. 16 make better use of an
    accelerator."""
    updates_per_episode: float = 0.0
    """Updates of all agents per episode; 0: that of the scale, which is 1/4 for paper. The paper itself uses 1."""
    skip_figures: bool = False
    """Do not draw the figures into OUT/figures at the end."""


def run(argv: Sequence[str]) -> None:
    options = parse(Reproduce, argv, "dpmac reproduce", EXAMPLE)
    wanted = wanted_of(options)
    from dpmac.cli import progress
    from dpmac.results import store

    progress.use_cache()
    with store.locked(options.out):
        interrupted = train(options, wanted, noted("reproduce", argv))
    if interrupted:
        raise KeyboardInterrupt


def train(options: Reproduce, wanted: dict[str, Any], command: str) -> bool:
    """Train what is missing, and draw all there is; whether Ctrl-C came."""
    begun = time.monotonic()
    worked = work_through(options.out, wanted, options, command)
    results = options.results(options.out)
    names = {name for key, config in wanted.items() for name in run_names(key, config).values()}
    summary = {
        "out": str(options.out),
        "scale": options.scale,
        "runs": len(names),
        "finished": len(names & results.runs.keys()),
        "trained_now": worked.runs,
        "seconds_now": round(time.monotonic() - begun, 1),
        "seconds_in_all": round(sum(item["seconds"] for item in results.slices), 1),
        "export": str(options.export) if options.export else None,
    }
    if not options.skip_figures and summary["finished"] == summary["runs"]:
        draw(options.out / "figures", results)
    emit(summary, options.json, lambda: text(summary))
    return worked.interrupted


def draw(folder: Path, results: Any) -> None:
    """The paper's figures as files, those of a profile under its name: release-nonprivate.png."""
    from dpmac.figures import catalogue, plots

    folder.mkdir(parents=True, exist_ok=True)
    for variant in ("", *catalogue.profiles_of(results)):
        for name, figure in catalogue.available(results, variant).items():
            path = folder / f"{'-'.join(part for part in (variant, name) if part)}.png"
            plots.figure_file(results, figure, path, variant=variant)


def wanted_of(options: Reproduce) -> dict[str, Any]:
    """Populations by name, from checked options."""
    options.check()
    scale = SCALES[options.scale]
    for task in options.tasks:
        require(task in TASKS, f"tasks are {', '.join(TASKS)}, not {task!r}")
    methods = [RENAMED_METHODS.get(method, method) for method in options.methods]
    for method in methods:
        require(method in METHODS, f"methods are {', '.join(METHODS)}, not {method!r}")
    require(options.episodes >= 0, f"episodes must be a whole number from 1, or 0, not {options.episodes}")
    names = targets(options.figures, options.with_ablations)
    ratio = {"updates_per_episode": options.updates_per_episode} if options.updates_per_episode else {}
    scale = dataclasses.replace(
        scale,
        seeds=options.seeds or scale.seeds,
        training=dataclasses.replace(scale.training, episodes=options.episodes or scale.training.episodes),
        learner_options={**scale.learner_options, **ratio},
    )
    wanted = populations(names, scale, options.tasks or scale.tasks, methods, options.profile)
    require(bool(wanted), nothing_of(names, options.tasks or scale.tasks, methods))
    if options.profile != "default":  # what is asked for by itself comes before the profile
        wanted = {
            name: dataclasses.replace(config, learner_options={**config.learner_options, **ratio})
            for name, config in wanted.items()
        }
    from dpmac.runner.train import complete

    return {name: complete(options.seeded(config)) for name, config in wanted.items()}


def nothing_of(names: Sequence[str], tasks: Sequence[str], methods: Sequence[str]) -> str:
    """Why no run is left, and which there are."""
    theirs = [cell for name in names for cell in cells_of(name, tuple(TASKS))]
    known = [" ".join(dict.fromkeys(cell[place] for cell in theirs)) for place in (0, 1)]
    return (
        f"{' '.join(names)}: no run is of these tasks and methods, {' '.join(tasks)} and {' '.join(methods)}; its runs "
        f"are of --tasks {known[0]} --methods {known[1]}"
    )


def text(summary: dict[str, Any]) -> str:
    """The summary for people."""
    from dpmac.cli.progress import clock

    lines = [
        f"{summary['finished']} of {summary['runs']} runs finished in {summary['out']}; {summary['trained_now']} now, "
        f"in {clock(summary['seconds_now'])}; {clock(summary['seconds_in_all'])} over all sessions"
    ]
    if summary["finished"] < summary["runs"]:
        lines.append("the same command goes on")
    else:
        lines.append(f"next: dpmac report {shlex.quote(summary['out'])} --out report.html")
    return "\n".join(lines)
