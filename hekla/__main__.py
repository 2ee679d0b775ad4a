"""`python -m hekla` is the `hekla` command; the supervisor starts its daemons this way, so that no
PATH is needed."""

import sys

from hekla.cli.hekla import main

if __name__ == "__main__":
    sys.exit(main())
