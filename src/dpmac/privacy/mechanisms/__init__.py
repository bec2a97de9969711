"""Mechanisms: what may be done to a message before it leaves an agent, one class each, and the one list of them.

A mechanism has two sides. The host side, here, owns its description, its exact privacy loss, calibration, limits,
audits and the deployed release. It names its array twin in `agents.mechanisms` (`Mechanism.traced`), which releases the
same bits inside compiled programs. To add a mechanism, write one class for each side and add a line to `BUILT_IN`, or
name the host class as `package.module:Class` wherever a mechanism is asked for.
"""

from functools import cache
from typing import TYPE_CHECKING

from dpmac import plugins
from dpmac.config import Channel, require

if TYPE_CHECKING:
    from dpmac.privacy.mechanisms.base import Mechanism

BUILT_IN = {
    "gaussian": "dpmac.privacy.mechanisms.gaussian:Gaussian",
    "response": "dpmac.privacy.mechanisms.response:Response",
    "code": "dpmac.privacy.mechanisms.code:Code",
    "subset": "dpmac.privacy.mechanisms.subset:Subset",
    "timed": "dpmac.privacy.mechanisms.timed:Timed",
    "correlated": "dpmac.privacy.mechanisms.correlated:Correlated",
    "sums": "dpmac.privacy.mechanisms.correlated:Sums",
}
"""Names of mechanisms; imported when asked for."""


def names() -> list[str]:
    """Mechanisms that can be named."""
    return list(BUILT_IN)


def allowed() -> str:
    """What may be named, in words."""
    return f"{', '.join(names())}, or package.module:Class of your own"


def find(name: str) -> "type[Mechanism]":
    """The host class of a built-in name or of `package.module:Class`."""
    from dpmac.privacy.mechanisms.base import Mechanism

    wanted = "a dpmac.privacy.mechanisms.base.Mechanism"
    return plugins.load("mechanism", name, BUILT_IN, plugins.subclass_of(Mechanism), wanted)


@cache
def of(channel: Channel) -> "Mechanism":
    """The mechanism that a channel describes; a description that it does not allow is `BadInput`."""
    require(isinstance(channel, Channel), f"expected a dpmac.config.Channel, not {channel!r}")
    return find(channel.mechanism)(channel)
