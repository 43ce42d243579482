"""Stores for trials: a topic is made once, and each trial gets a copy of all its objects."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import boto3
from botocore.config import Config

from filer.clock import SystemClock
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from tests.cluster.faults.trials.trial_topic import TOPIC, Expected, make_topic
from tests.support.store.object_faults import DirectoryObjects, Objects, Past, S3Objects
from tests.support.store.quick_folder import quick_folder
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server

BUCKET = "trials"


@dataclass(frozen=True)
class World:
    """One copy: its address, and its objects from outside."""

    address: StoreAddress
    objects: Objects

    def open(self) -> Store:
        """The product's store on it."""
        return open_store(self.address, SystemClock())


@dataclass(frozen=True)
class Template:
    """What readers of each copy must find, and the older versions of its objects."""

    expected: Expected
    past: Past


class Worlds(Protocol):
    """Makes the topic, and copies of it."""

    async def template(self) -> Template:
        """Make the topic. Called once."""
        ...

    def copy(self) -> "contextlib.AbstractAsyncContextManager[World]":
        """A copy, removed at the end."""
        ...


async def _made(world: World) -> Template:
    past = Past(world.objects, TOPIC)
    return Template(await make_topic(world.open, world.objects, past), past)


class DirectoryWorlds:
    """Copies of a directory."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()

    async def template(self) -> Template:
        """As `Worlds.template`."""
        return await _made(self._world("template"))

    @asynccontextmanager
    async def copy(self) -> AsyncIterator[World]:
        """As `Worlds.copy`."""
        name = f"copy-{next(self._numbers)}"
        shutil.copytree(self._folder / "template", self._folder / name)
        try:
            yield self._world(name)
        finally:
            shutil.rmtree(self._folder / name)

    def _world(self, name: str) -> World:
        folder = self._folder / name
        return World(StoreAddress(str(folder)), DirectoryObjects(folder))


class S3Worlds:
    """Copies below prefixes of a bucket."""

    def __init__(self, endpoint: str) -> None:
        config = Config(s3={"addressing_style": "path"}, max_pool_connections=4)
        self._endpoint, self._numbers = endpoint, count()
        self._client: Any = boto3.client(
            "s3", endpoint_url=endpoint, region_name=S3_ENVIRONMENT["AWS_REGION"], config=config
        )
        self._client.create_bucket(Bucket=BUCKET)

    async def template(self) -> Template:
        """As `Worlds.template`."""
        return await _made(self._world("template"))

    @asynccontextmanager
    async def copy(self) -> AsyncIterator[World]:
        """As `Worlds.copy`."""
        name = f"copy-{next(self._numbers)}"
        world = self._world(name)
        for key in self._world("template").objects.names():
            source = {"Bucket": BUCKET, "Key": f"template/{key}"}
            self._client.copy_object(Bucket=BUCKET, Key=f"{name}/{key}", CopySource=source)
        try:
            yield world
        finally:
            for key in world.objects.names():
                self._client.delete_object(Bucket=BUCKET, Key=f"{name}/{key}")

    def _world(self, name: str) -> World:
        address = StoreAddress(f"s3://{BUCKET}/{name}", self._endpoint)
        return World(address, S3Objects(self._client, BUCKET, name))


@asynccontextmanager
async def worlds(store: str) -> AsyncIterator[Worlds]:
    """Worlds in a directory, or on an S3 server (`s3`)."""
    with contextlib.ExitStack() as stack:
        if store == "s3":
            stack.enter_context(mock.patch.dict("os.environ", S3_ENVIRONMENT))
            yield S3Worlds(stack.enter_context(s3_server()))
        else:
            yield DirectoryWorlds(stack.enter_context(quick_folder()))
