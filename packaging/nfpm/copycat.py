#!/opt/copycat/bin/python -I
"""`copycat` of the packages: the environment beside it, whatever PYTHONPATH, the working directory and the user's packages say."""

import sys

from copycat_agent.__main__ import main

sys.exit(main())
