"""``python -m opassay``."""

import sys

from opassay.pipeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
