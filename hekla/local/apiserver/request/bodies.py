"""Readers of the bodies that belong to a verb or a subresource and are no kind of their own."""

from __future__ import annotations

from hekla.local.apiserver.objects.encoding.decode import reader

DELETE_OPTIONS = reader("meta.k8s.io", "v1", "DeleteOptions", any_version=True)
EVICTION = reader("policy", "v1", "Eviction", also=("policy/v1beta1",))
SCALE = reader("autoscaling", "v1", "Scale")
TOKEN_REQUEST = reader("authentication.k8s.io", "v1", "TokenRequest")
BINDING = reader("", "v1", "Binding")
