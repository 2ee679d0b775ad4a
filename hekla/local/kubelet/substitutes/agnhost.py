"""Stands in for the image agnhost of Kubernetes' own tests: `pause`, and `netexec`, which answers
HTTP."""

import os
import runpy
import signal
import sys


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    command, *rest = sys.argv[1:] or ["pause"]
    if command == "netexec":
        port = next(
            (flag.partition("=")[2] for flag in rest if flag.startswith("--http-port=")), "8080"
        )
        sys.argv = ["web", port]
        runpy.run_path(
            os.path.join(os.path.dirname(os.path.abspath(__file__)), "web.py"), run_name="__main__"
        )
    if command != "pause":
        sys.exit(f"the stand-in for agnhost knows pause and netexec, not {command}")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
