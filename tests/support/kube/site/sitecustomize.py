"""Cluster DNS for the processes of pods: names that end with `.svc` are looked up in the file PODS_HOSTS.

It has a line for each name: the name, and its addresses. A pod's own name begins with its address, in dashes.
"""

import functools
import os
import random
import re
import socket
from pathlib import Path
from typing import Any

import uvloop

_look_up = socket.getaddrinfo
_OF_A_POD = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)\.")


def getaddrinfo(host: Any, *arguments: Any, **more: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    if not isinstance(name, str) or not name.endswith(".svc"):
        return _look_up(host, *arguments, **more)
    if found := _OF_A_POD.match(name):
        return _look_up(".".join(found.groups()), *arguments, **more)
    lines = [line.split() for line in Path(os.environ["PODS_HOSTS"]).read_text().splitlines()]
    addresses = next((line[1:] for line in lines if line[0] == name), [])
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, f"no such name: {name}")
    random.shuffle(addresses)
    return [entry for each in addresses for entry in _look_up(each, *arguments, **more)]


socket.getaddrinfo = getaddrinfo


async def _by_thread(self: Any, host: Any, port: Any, **more: Any) -> Any:
    return await self.run_in_executor(None, functools.partial(getaddrinfo, host, port, **more))


# It looks names up by itself.
uvloop.Loop.getaddrinfo = _by_thread
