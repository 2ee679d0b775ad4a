"""Figures of colocation: what an online service notices of offline work beside it, what that work gets,
and what the agent costs."""
