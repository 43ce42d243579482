"""A Python program, forked by what listens at a socket: `python forked_program.py SOCKET MODULE ARGUMENT...`.

It has this process's stdin, stdout, stderr, environment and folder. This process waits for it and ends as it has ended.
"""

import json
import os
import socket
import sys
from pathlib import Path

_STANDARD_FILES = (0, 1, 2)
_NUMBER_BYTES = 8


def main(address: str, module: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        program = {"module": module, "arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
        line = json.dumps(program).encode() + b"\n"
        sent = socket.send_fds(server, [line], _STANDARD_FILES)
        server.sendall(line[sent:])
        # Whoever reads what the program prints is to see its end.
        for each in _STANDARD_FILES:
            os.close(each)
        return int.from_bytes(server.recv(_NUMBER_BYTES, socket.MSG_WAITALL), signed=True)


if __name__ == "__main__":
    # A program that a signal has ended has a negative code.
    os._exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]) & 0xFF)
