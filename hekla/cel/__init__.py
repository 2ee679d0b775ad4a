"""CEL with Kubernetes' library: parsed, type-checked against declared types, and compiled to
closures over plain JSON trees.

Rules of custom kinds, admission policies, match conditions of webhooks and selectors of devices are
written in it.  Nothing here is imported before the first expression is compiled.  Begin at
`environment.py`; why it is our own is decision 0130.
"""
