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
    from dpmac.privacy import (
        accounting,
        audit,
        checks,
        dependence,
        discrete,
        ledger,
        limits,
        loss,
        measurement,
        mechanisms,
        report,
        scalar,
        staircase,
        statement,
        streams,
        theorem,
        timing,
        training,
    )
    from dpmac.privacy.accounting import calibrate, delta, epsilon, event, pure_epsilon, relation
    from dpmac.privacy.audit import (
        Bound,
        Canary,
        audit_channel,
        audit_gaussian,
        audit_response,
        canary,
        family_confidence,
        verdict,
    )
    from dpmac.privacy.checks import Check, check_charges, check_claim, check_gaussian, check_response, failures
    from dpmac.privacy.ledger import BudgetSpent, Ledger
    from dpmac.privacy.limits import (
        bits_per_episode,
        eavesdropper_accuracy,
        joint_accuracy,
        private_accuracy,
        signal_to_noise,
        transcript_accuracy,
    )
    from dpmac.privacy.measurement import Entropy, Measurement
    from dpmac.privacy.report import explain
    from dpmac.privacy.statement import claim, noise_scales

_HOME = {
    "accounting": ("calibrate", "delta", "epsilon", "event", "pure_epsilon", "relation"),
    "audit": (
        "Bound",
        "Canary",
        "audit_channel",
        "audit_gaussian",
        "audit_response",
        "canary",
        "family_confidence",
        "verdict",
    ),
    "checks": ("Check", "check_charges", "check_claim", "check_gaussian", "check_response", "failures"),
    "ledger": ("BudgetSpent", "Ledger"),
    "limits": (
        "bits_per_episode",
        "eavesdropper_accuracy",
        "joint_accuracy",
        "private_accuracy",
        "signal_to_noise",
        "transcript_accuracy",
    ),
    "measurement": ("Entropy", "Measurement"),
    "report": ("explain",),
    "statement": ("claim", "noise_scales"),
}
_MODULES = (
    "accounting",
    "audit",
    "checks",
    "dependence",
    "discrete",
    "ledger",
    "limits",
    "loss",
    "measurement",
    "mechanisms",
    "report",
    "scalar",
    "staircase",
    "statement",
    "streams",
    "theorem",
    "timing",
    "training",
)

__all__ = [
    "BadInput",
    "Bound",
    "Budget",
    "BudgetSpent",
    "Canary",
    "Channel",
    "Check",
    "Entropy",
    "Ledger",
    "Measurement",
    "Release",
    "accounting",
    "audit",
    "audit_channel",
    "audit_gaussian",
    "audit_response",
    "bits_per_episode",
    "calibrate",
    "canary",
    "check_charges",
    "check_claim",
    "check_gaussian",
    "check_response",
    "checks",
    "claim",
    "delta",
    "dependence",
    "discrete",
    "eavesdropper_accuracy",
    "epsilon",
    "event",
    "explain",
    "failures",
    "family_confidence",
    "joint_accuracy",
    "ledger",
    "limits",
    "loss",
    "measurement",
    "mechanisms",
    "noise_scales",
    "private_accuracy",
    "pure_epsilon",
    "relation",
    "report",
    "scalar",
    "signal_to_noise",
    "staircase",
    "statement",
    "streams",
    "theorem",
    "timing",
    "training",
    "transcript_accuracy",
    "verdict",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"dpmac.privacy.{module}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dpmac.privacy.{name}")
    raise AttributeError(f"module 'dpmac.privacy' has no attribute {name!r}")
