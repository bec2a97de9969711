"""Tests compile little: tiny programs, no optimisation by the backend, and a cache that outlives them."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
CHEAP = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", CHEAP)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

gc.set_threshold(100_000, 50, 1_000)
"""Tracing makes millions of objects that stay; looking through them again and again costs a tenth of the time."""

MAPS = Path("/proc/self/maps")
MOST_MAPS = 40_000
"""Linux allows a process 65,530."""

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of pages."""
    if BROWSER is None:
        assert "CI" not in os.environ, "continuous integration must look at the page: install chromium"
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Let go of what was compiled when it is much: a process with thousands of programs runs out of memory maps."""
    yield
    if "jax" in sys.modules and (not MAPS.exists() or MAPS.read_text().count("\n") > MOST_MAPS):
        sys.modules["jax"].clear_caches()
        gc.collect()


LONGEST = (
    "runner/test_cluster.py",
    "test_docs.py",
    "runner/test_schedule.py",
    "cli/test_every_command.py",
    "runner/test_kills.py",
    "analysis/test_trained_audit.py",
    "tasks/test_own_task_docs.py",
    "analysis/test_eavesdrop.py",
    "runner/test_sweep.py",
    "runner/test_private_training.py",
    "analysis/test_training_audit.py",
    "agents/test_team.py",
    "analysis/test_frontier.py",
    "runner/test_methods.py",
    "agents/test_extend_docs.py",
    "test_site.py",
    "figures/test_report.py",
    "runner/test_train_command.py",
    "runner/test_population.py",
    "runner/test_interrupts.py",
    "cli/test_demo.py",
    "learner/test_maddpg.py",
    "deploy/test_network.py",
)
"""These files go first, so that the processes which share the files end together."""


def pytest_collection_modifyitems(items):
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_terminal_summary(terminalreporter):
    """Say at the end what was counted, whichever process did it."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [text for report in reports for key, text in getattr(report, "user_properties", ()) if key == "counted"]
    if lines:
        terminalreporter.section("counted")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)
