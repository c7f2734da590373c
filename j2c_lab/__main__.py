"""`python -m j2c_lab` is the `j2c` command."""

import sys

if __name__ == "__main__":
    from j2c_lab.cli import main

    sys.exit(main())
