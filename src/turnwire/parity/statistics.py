"""Paired statistics: a permutation test, sign counts, bootstrap intervals, Holm's correction.

Promise: the same numbers give the same answer, also where draws are random: the seed is fixed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["EXACT_PAIRS", "Comparison", "Signs", "bootstrap_interval", "compare", "holm", "permutation_test", "signs"]

EXACT_PAIRS = 20
DRAWS = 100_000
_RESAMPLES = 10_000
_SEED = 20_260_701
# Sums of floats that should be equal differ in their last bits.
_SLACK = 1e-9


class Signs(msgspec.Struct, frozen=True):
    """In how many pairs the first is larger, the second is larger, both are equal."""

    more: int
    less: int
    same: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of two arms over the same tasks. The difference is first minus second; `adjusted` is Holm's p."""

    measure: str
    pairs: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    signs: Signs
    p: float
    adjusted: float = 1.0


def signs(differences: Sequence[float]) -> Signs:
    """The directions of paired differences."""
    more = sum(value > 0 for value in differences)
    less = sum(value < 0 for value in differences)
    return Signs(more, less, len(differences) - more - less)


def permutation_test(differences: Sequence[float], *, draws: int = DRAWS, seed: int = _SEED) -> float:
    """The two-sided p of the paired permutation test on the mean: how often random signs give a sum at least as far
    from zero. Exact up to EXACT_PAIRS pairs, then by draws, where the observed signs count as one of them."""
    if not differences:
        return 1.0
    observed = abs(sum(differences)) - _SLACK * max(1.0, max(abs(value) for value in differences))
    if len(differences) <= EXACT_PAIRS:
        sums = [0.0]
        for value in differences:
            sums = [total + value for total in sums] + [total - value for total in sums]
        return sum(abs(total) >= observed for total in sums) / len(sums)
    tables = [_signed_sums(differences[start : start + 8]) for start in range(0, len(differences), 8)]
    source = random.Random(seed)  # noqa: S311 - statistics, not secrets
    bits = 8 * len(tables)
    far = 0
    for _ in range(draws):
        drawn = source.getrandbits(bits)
        total = 0.0
        for table in tables:
            total += table[drawn & 255]
            drawn >>= 8
        far += abs(total) >= observed
    return (far + 1) / (draws + 1)


def _signed_sums(values: Sequence[float]) -> list[float]:
    """The sum of up to eight values under each of 256 choices of signs."""
    return [sum(value if mask >> at & 1 else -value for at, value in enumerate(values)) for mask in range(256)]


def bootstrap_interval(
    differences: Sequence[float], *, level: float = 0.95, resamples: int = _RESAMPLES, seed: int = _SEED
) -> tuple[float, float]:
    """The percentile interval of the mean difference."""
    if not differences:
        return 0.0, 0.0
    source = random.Random(seed)  # noqa: S311
    count = len(differences)
    means = sorted(sum(source.choices(differences, k=count)) / count for _ in range(resamples))
    tail = int((1 - level) / 2 * resamples)
    return means[tail], means[resamples - 1 - tail]


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p for several measures, in the order given."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def compare(measures: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> list[Comparison]:
    """Every measure of two arms, pair by pair, with Holm's correction over all of them."""
    made = []
    for measure, (first, second) in measures.items():
        differences = [one - other for one, other in zip(first, second, strict=True)]
        low, high = bootstrap_interval(differences)
        count = max(1, len(differences))
        made.append(
            Comparison(
                measure=measure,
                pairs=len(differences),
                first=sum(first) / count,
                second=sum(second) / count,
                difference=sum(differences) / count,
                low=low,
                high=high,
                signs=signs(differences),
                p=permutation_test(differences),
            )
        )
    adjusted = holm([one.p for one in made])
    return [msgspec.structs.replace(one, adjusted=p) for one, p in zip(made, adjusted, strict=True)]
