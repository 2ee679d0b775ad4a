"""Gives Python programs the pod's own names where the pod cannot have a hosts file of its own.

On PYTHONPATH only where mount namespaces are not allowed; then this is all that stands between a
job and "name or service not known".  Names of the file $HEKLA_HOSTS are turned into addresses
before the system's resolver is asked; the pod's own name is what gethostname() answers.  The
machine's own sitecustomize, which this one hides, is run afterwards.
"""

from __future__ import annotations

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # this runs in every Python program of a pod: it may cost nothing
    from collections.abc import Callable
    from typing import Any

_hosts = os.environ.get("HEKLA_HOSTS", "")


def _address(host: Any) -> Any:
    """The address that the pod's hosts file has for a name; the name itself when it has none."""
    if not isinstance(host, str) or not host:
        return host
    try:
        with open(_hosts) as file:
            for line in file:
                address, *names = line.partition("#")[0].split() or [""]
                if host in names and ":" not in address:
                    return address
    except OSError:
        pass
    return host


def _first_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(host: Any, *args: Any, **named: Any) -> Any:
        return function(_address(host), *args, **named)

    return call


def _of_address(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: socket.socket, address: Any, *rest: Any) -> Any:
        if isinstance(address, tuple) and address:
            address = (_address(address[0]), *address[1:])
        return method(self, address, *rest)

    return call


def _install() -> None:
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
        setattr(socket, name, _first_argument(getattr(socket, name)))
    for name in ("connect", "connect_ex", "bind"):
        setattr(socket.socket, name, _of_address(getattr(socket.socket, name)))
    own = os.environ.get("HOSTNAME")
    if own:
        socket.gethostname = lambda: own


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    for directory in sys.path:
        path = os.path.join(directory or ".", "sitecustomize.py")
        if os.path.abspath(directory or ".") != here and os.path.isfile(path):
            with open(path) as file:
                exec(
                    compile(file.read(), path, "exec"),
                    {"__name__": "sitecustomize", "__file__": path},
                )
            return


if _hosts:
    _install()
_run_hidden()
