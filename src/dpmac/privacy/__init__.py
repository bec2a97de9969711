"""How well secrets are kept: calibration, accounting, a ledger and audits, for this learner or for any other.

    >>> from dpmac import privacy
    >>> channel = privacy.Channel(clip_norm=0.5)
    >>> sigma = privacy.calibrate(channel, epsilon=1.0, delta=1e-4, horizon=25)
    >>> round(sigma, 2)
    15.93
    >>> round(privacy.epsilon(privacy.Release(channel, sigma, horizon=25), delta=1e-4), 3)
    1.0

NumPy, SciPy and dp-accounting only. Names are loaded when they are first used, so that importing this costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpmac.config import BadInput, Budget, Channel, Release

if TYPE_CHECKING:
    from dpmac.privacy import accounting, loss, statement, theorem
    from dpmac.privacy.accounting import calibrate, delta, epsilon, event, pure_epsilon, relation
    from dpmac.privacy.statement import claim, noise_levels

_HOME = {
    "accounting": ("calibrate", "delta", "epsilon", "event", "pure_epsilon", "relation"),
    "statement": ("claim", "noise_levels"),
}
_MODULES = ("accounting", "loss", "statement", "theorem")

__all__ = [
    "BadInput",
    "Budget",
    "Channel",
    "Release",
    "accounting",
    "calibrate",
    "claim",
    "delta",
    "epsilon",
    "event",
    "loss",
    "noise_levels",
    "pure_epsilon",
    "relation",
    "statement",
    "theorem",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"dpmac.privacy.{module}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dpmac.privacy.{name}")
    raise AttributeError(f"module 'dpmac.privacy' has no attribute {name!r}")
