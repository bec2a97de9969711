"""k-ary randomised response in compiled programs."""

from jax import Array

from dpmac.agents.mechanisms.base import NoiseScale, Symbols, choose


class Response(Symbols):
    """The symbol, or with the flip probability one of the others, each as likely."""

    def slope(self, scale: NoiseScale) -> Array:
        return 1 - scale.value * self.size / (self.size - 1)

    def law(self, message: Array, scale: NoiseScale) -> Array:
        return self.slope(scale) * choose(message) + (1 - self.slope(scale)) / self.size

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """Posterior over symbols under a uniform prior, centred."""
        return (released - 1 / self.size) * self.slope(scale)
