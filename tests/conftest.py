"""Tests compile little: tiny programs, no optimisation by the backend, and a cache that outlives them."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def pytest_terminal_summary(terminalreporter):
    """Say at the end what was counted, whichever process did it."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [text for report in reports for key, text in getattr(report, "user_properties", ()) if key == "counted"]
    if lines:
        terminalreporter.section("counted")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)
