"""Synthetic traffic: how many messages a second come in all, and which share of them to each slot."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from filer.slots import SLOTS, slot_of

Shares = npt.NDArray[np.float64]
"""The share of all messages that comes to the slots before each bound: 0 first, 1 last."""
Level = Callable[[float], float]
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Traffic:
    """Messages a second in all at a time in seconds, and the shares of the slots then."""

    level: Level
    shares: Callable[[float], Shares]

    def rate(self, seconds: float, start: int, stop: int) -> float:
        """Messages a second into the slots `[start, stop)`."""
        shares = self.shares(seconds)
        return self.level(seconds) * float(shares[stop] - shares[start])

    def slot_rates(self, seconds: float, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Messages a second into each of these slots."""
        return self.level(seconds) * np.diff(self.shares(seconds)[start : stop + 1])


def shares_of(weights: npt.NDArray[np.float64]) -> Shares:
    sums = np.concatenate(([0.0], np.cumsum(weights)))
    return sums / sums[-1]


@cache
def even_shares() -> Shares:
    return shares_of(np.ones(SLOTS))


@cache
def zipf_weights(names: str = "key {}", *, keys: int = 100_000, exponent: float = 1.1) -> npt.NDArray[np.float64]:
    """Per slot, of keys so named, each as frequent as its rank to the power of `-exponent`."""
    slots = [slot_of(names.format(number).encode()) for number in range(keys)]
    return np.bincount(slots, np.arange(1, keys + 1) ** -exponent, minlength=SLOTS)


def hot_slot_shares(slot: int, share: float) -> Shares:
    """One slot has that share, all others the rest between them."""
    weights = np.full(SLOTS, (1 - share) / (SLOTS - 1))
    weights[slot] = share
    return shares_of(weights)


def steady(rate: float) -> Level:
    return lambda seconds: rate


def daily_wave(low: float, high: float) -> Level:
    """Lowest at midnight, highest at noon."""
    return lambda seconds: low + (high - low) * (1 - math.cos(2 * math.pi * seconds / DAY_SECONDS)) / 2


def flood(rate: float, *, times: float, from_seconds: float, to_seconds: float) -> Level:
    return lambda seconds: rate * (times if from_seconds <= seconds < to_seconds else 1)


def even(level: Level) -> Traffic:
    return Traffic(level, lambda seconds: even_shares())


def shaped(level: Level, shares: Shares) -> Traffic:
    return Traffic(level, lambda seconds: shares)


def moving_hot_spot(rate: float, *, width: int, share: float, every_seconds: float) -> Traffic:
    """That share goes to `width` neighbouring slots, elsewhere each `every_seconds`."""

    @lru_cache(maxsize=2)
    def shares(index: int) -> Shares:
        weights = np.full(SLOTS, (1 - share) / SLOTS)
        first = index * 20_011 % (SLOTS - width)
        weights[first : first + width] += share / width
        return shares_of(weights)

    return Traffic(steady(rate), lambda seconds: shares(int(seconds // every_seconds)))


@dataclass(frozen=True)
class PoissonTraffic(Traffic):
    """The same on average: how many messages come in a second is up to chance, in each range of slots by itself."""

    chance: np.random.Generator

    def rate(self, seconds: float, start: int, stop: int) -> float:
        """Of that very second."""
        return float(self.chance.poisson(super().rate(seconds, start, stop)))


def poisson(traffic: Traffic, seed: int) -> Traffic:
    return PoissonTraffic(traffic.level, traffic.shares, np.random.default_rng(seed))
