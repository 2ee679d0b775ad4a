"""The validation rules of the built-in kinds, as pure functions on JSON trees (local-cluster 5, 6).

Each function is named after the kind that it checks. `<kind>(tree)` runs on create,
`<kind>_update(new, old)` when the object is updated, `<kind>_status(new, old)` when its status is;
each returns field errors with Kubernetes' messages, none when the object is valid. The tables
CREATE, UPDATE and STATUS at the end of a module say which function belongs to which (group, kind).
"""
