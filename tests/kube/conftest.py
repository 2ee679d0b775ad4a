"""Tests of this room that need an API server talk to a real one, a process of its own."""

from tests.apiserver_process import apiserver, shared_apiserver

__all__ = ["apiserver", "shared_apiserver"]
