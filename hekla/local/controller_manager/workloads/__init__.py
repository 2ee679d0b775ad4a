"""Deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""
