"""Runs and populations of runs: training, checkpoints, evaluation, deployment."""
