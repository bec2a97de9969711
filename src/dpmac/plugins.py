"""What users bring along: tasks and methods of their own, by the place that they are imported from."""

import importlib
import sys
from typing import Any

from dpmac.config import BadInput


def load(kind: str, name: str, place: str) -> Any:
    """What stands at `package.module:Name`; the kind and the name by which it was asked for make the message."""
    module, _, attribute = place.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # a user's own module lies in the working directory, where installed commands do not look
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{kind} {name!r} cannot be loaded: {error}") from None
