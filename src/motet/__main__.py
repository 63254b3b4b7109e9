"""`python -m motet` is `motet`."""

import sys

from motet.cli import main

sys.exit(main())
