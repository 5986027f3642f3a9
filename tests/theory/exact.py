"""Probabilities by enumeration: every way in which n examples can be decided, with its exact probability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction


def outcomes(n: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """All ways to decide n examples for ``kinds`` classes, as counts."""
    if kinds == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in outcomes(n - first, kinds - 1):
            yield (first, *rest)


def probability(counts: Sequence[int], chances: Sequence[Fraction]) -> Fraction:
    """The multinomial probability of the counts."""
    ways = math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))
    return math.prod((q**c for q, c in zip(chances, counts, strict=True)), start=Fraction(ways))


def failure(n: int, chances: Sequence[Fraction], loss: Callable[[int], int], bound: float) -> Fraction:
    """The probability that E[loss(d)] less its mean over n examples exceeds the bound."""
    expected = sum(q * loss(d) for d, q in enumerate(chances))
    total = Fraction(0)
    for counts in outcomes(n, len(chances)):
        mean = Fraction(sum(c * loss(d) for d, c in enumerate(counts)), n)
        if expected - mean > bound:
            total += probability(counts, chances)
    return total


def bracket(i: int, negative: Sequence[int]) -> Callable[[int], int]:
    """ℓ_i − Σ_{m∈N} ℓ_m of an example that is decided for d."""
    return lambda d: (d != i) - sum(d != m for m in negative)


def against(negative: Sequence[int]) -> Callable[[int], int]:
    """Σ_{m∈N} ℓ_m of an example that is decided for d."""
    return lambda d: sum(d != m for m in negative)
