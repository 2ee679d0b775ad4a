"""Figures of usage: how soon it is known that something works, and how long it takes to be told."""
