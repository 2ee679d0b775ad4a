"""Flows of jobs: each made from a template, when those that it waits for are ready."""
