"""`python -m hekla.cli.vcctl`."""

from hekla.cli.vcctl import main

raise SystemExit(main())
