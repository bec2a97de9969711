"""Show the doctests of docstrings as the sessions that they are, not as quotations of quotations."""

import re
from typing import Any

import griffe

SESSION = re.compile(r"(?:^>>> .*\n?(?:^(?!>>>).+\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = SESSION.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
