"""Trained teams at work: each agent with its own noise, its own account and nothing of the others."""
