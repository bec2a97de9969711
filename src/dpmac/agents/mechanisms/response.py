"""k-ary randomised response in compiled programs."""

from jax import Array

from dpmac.agents.mechanisms.base import Level, Symbols


class Response(Symbols):
    """The symbol, or with the flip probability one of the others, each as likely."""

    def slope(self, level: Level) -> Array:
        return 1 - level.amount * self.size / (self.size - 1)

    def read(self, released: Array, level: Level) -> Array:
        """Posterior over symbols under a uniform prior, centred."""
        return (released - 1 / self.size) * self.slope(level)
