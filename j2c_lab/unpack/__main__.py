import sys

from j2c_lab.unpack.main import main

sys.exit(main())
