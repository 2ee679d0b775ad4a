"""The Pod Security Standards: what a pod may ask of its node at the levels baseline and restricted,
version by version.

Pure rules over trees.  `levels.py` reads levels and versions from a namespace's labels,
`standards.py` has the table of checks, one row a check and version, and `baseline.py` and
`restricted.py` the checks themselves, in Kubernetes' words.
"""
