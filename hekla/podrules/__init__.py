"""What a pod, and the template of one, may say: Kubernetes' rules, in its order and its words,
written once.

Two ask here: the API server, of pods and of the templates inside workloads
(`hekla/local/apiserver/objects/validation`), and the webhooks, of the templates of a job's tasks
(`hekla/admission/rules/podtemplates.py`).  Trees come with their defaults or without them: what is
absent counts as its default.  Each rule takes a piece of a tree, where it stands and a list of what
is wrong, which it adds to, and looks at nothing else.

Begin reading at `spec.py`, where the walk stands in its order.
"""
