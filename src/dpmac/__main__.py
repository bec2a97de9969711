"""`python -m dpmac` is the command `dpmac`."""

import sys

from dpmac.cli import main

sys.exit(main())
