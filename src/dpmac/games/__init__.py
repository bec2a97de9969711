"""The paper's games, standing alone: binary sums, the collaborative game with privacy, multiple-round sums.

NumPy and SciPy only. Players are numbered from 1 in the text, as in the paper, and from 0 in the code.
"""


class GameError(ValueError):
    """A game that cannot be played as it was given; the message says what is allowed."""


def require(condition: object, message: str) -> None:
    """Raise `GameError` with this message unless the condition holds."""
    if not condition:
        raise GameError(message)
