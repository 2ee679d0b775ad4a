"""What others have published beside what we measure in its conditions: `python -m benchmarks
scoreboard`.

A published figure is a row of `published.tsv`; what we measure for it is a figure like all others.
Modules of this package measure those for which there was no other reason.
"""
