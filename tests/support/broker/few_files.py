"""A broker that may have no more than 128 files open: `python -m tests.support.broker.few_files serve …`."""

import resource
import sys

from mq.cli.main import run

OPEN_FILES = 128

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    sys.exit(run(sys.argv[1:]))
