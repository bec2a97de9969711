"""`dpmac config`: the whole configuration of a run, as a file to edit and to give to `dpmac train --config`."""

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpmac.cli import DESCRIBE, parse
from dpmac.cli.train import RunOptions, with_settings
from dpmac.config import Budget, RunConfig, dumps, to_json

EXAMPLE = "dpmac config ccn --learner pathwise"
HEAD = """\
# A run: dpmac train --config THIS.toml --out FOLDER
# What is left out has its default. Options on the command line win."""


@dataclass(frozen=True, kw_only=True)
class Config(RunOptions):
    """Print the configuration that `dpmac train` would use with these options, including every setting of the learner,
    as TOML with explanations, or as JSON. Nothing is trained or written."""

    json: bool = False
    """JSON instead of TOML, as a run's config.json holds it."""


def run(argv: Sequence[str]) -> None:
    cls, group, default = with_settings([] if DESCRIBE in argv else argv, Config)
    options = parse(cls, argv, "dpmac config", EXAMPLE, default)
    config = options.run_config(to_json(getattr(options, group)))
    from dpmac.learner import base as learners
    from dpmac.runner import population, train

    config = train.complete(config)
    population.check(config)
    print(dumps(config, indent=2) if options.json else toml(config, learners.find(config.learner)))


def toml(config: RunConfig, learner: type) -> str:
    """A configuration as TOML, each field below what it means."""
    tables = {name: type(getattr(config, name)) for name in ("channel", "networks", "training", "private")}
    plain = {"task_options", "method_options", "learner_options", "budgets", *tables}
    data = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    lines = [HEAD, *fields({name: value for name, value in data.items() if name not in plain}, RunConfig)]
    for name in ("task_options", "method_options"):
        if data[name]:
            lines += ["", f"[{name}]", *fields(data[name], None)]
    for budget in config.budgets:
        lines += ["", "[[budgets]]", *fields(vars(budget), Budget if budget is config.budgets[0] else None)]
    for name, cls in tables.items():
        lines += ["", f"[{name}]", *fields(vars(data[name]), cls)]
    return "\n".join([*lines, "", "[learner_options]", *fields(config.learner_options, learner)])


def fields(values: dict[str, Any], cls: type | None) -> Iterator[str]:
    """Lines of a table; those without a value are left out."""
    meanings = {} if cls is None else meanings_of(cls)
    for name, value in values.items():
        if value is not None:
            yield from textwrap.wrap(meanings.get(name, ""), 110, initial_indent="# ", subsequent_indent="# ")
            yield f"{name} = {literal(value)}"


def literal(value: Any) -> str:
    """A value as TOML writes it; its floats include inf."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


def meanings_of(cls: type) -> dict[str, str]:
    """What stands below each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: " ".join(str(said.value.value).split())
        for field, said in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
    }
