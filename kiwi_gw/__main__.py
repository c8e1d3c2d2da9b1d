"""`python -m kiwi_gw` is `kiwi-gw`."""

import sys

from kiwi_gw.cli import main

sys.exit(main())
