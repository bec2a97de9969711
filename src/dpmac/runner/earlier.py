"""Sentences of privacy statements as earlier versions wrote them, beside those of today that say the same.

Statements are compared with what follows from their configuration wherever they are read, word by word. So a sentence
that is put in other words is kept here; every other text is taken for an alteration.
"""

from dpmac.privacy.mechanisms.additive import Additive
from dpmac.privacy.statement import ABOUT, NEIGHBOURS, SIMULATED
from dpmac.tasks.base import PADDED
from dpmac.tasks.ccn import CCN
from dpmac.tasks.midway import Midway

EARLIER = {
    NEIGHBOURS["message"]: (
        "two inputs of one agent that one single message is made from, all else the same",
        "two inputs of one agent that one single message is made from, both picked by an adversary from everything "
        "that was released before",
    ),
    NEIGHBOURS["episode"]: (
        "two whole episodes of one agent's inputs, all else the same",
        "two inputs of one agent at every step of an episode, both picked by an adversary from everything that was "
        "released before",
    ),
    ABOUT: (
        "agents deployed with this noise (dpmac.load), which they draw from the operating system for every message",
    ),
    SIMULATED: (
        "the run's own messages are simulated: their noise is float32, on the same grid, from a seed, and protects "
        "nothing from whoever knows the seed or enumerates what the generator can give",
    ),
    Additive.warning: (
        "a run draws its noise in float32 from a seed: right for experiments, not for secrets that matter",
    ),
    Additive.released_as: (
        "float32 numbers on no grid; deployed agents round them to multiples of a power of two near sigma/1024",
    ),
    PADDED: (
        "padded: where the environment ends early, messages go on to the horizon, so that their number tells nothing",
    ),
    CCN.observers["target"]: (
        "The target of each agent is observed by the other agent alone; the walk of an agent that has been told shows "
        "it to whoever sees that agent move.",
    ),
    Midway.observers["landmark"]: (
        "The landmark that an agent has been told of is observed by that agent alone; where the others walk when they "
        "have been told shows it to whoever sees them.",
    ),
}
"""Of version 0.1, and of results that were made on the way to 0.2."""

TODAY = {old: new for new, sentences in EARLIER.items() for old in sentences}
