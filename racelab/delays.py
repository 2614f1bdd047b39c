"""How long delayed things wait: seeded draws from a distribution, in milliseconds.

    {constant: 5}   {uniform: [1, 9]}   {normal: [5, 1]}   {exponential: 5}

`normal` is mean and standard deviation, `exponential` the mean; a draw below zero is zero. A gate draws in
the order in which things stop, and whoever has the seed can draw the same again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping

Distribution = Mapping[str, float | list[float]]

_DRAWS: dict[str, tuple[int, Callable[..., float]]] = {
    "constant": (1, lambda source, value: value),
    "uniform": (2, lambda source, low, high: source.uniform(low, high)),
    "normal": (2, lambda source, mean, deviation: source.normalvariate(mean, deviation)),
    "exponential": (1, lambda source, mean: source.expovariate(1 / mean) if mean else 0.0),
}
NAMES = tuple(_DRAWS)


def problem(distribution: Distribution) -> str | None:
    """What is wrong with a distribution, in words; None if nothing is."""
    if len(distribution) != 1 or next(iter(distribution)) not in _DRAWS:
        return f"one distribution of {', '.join(NAMES)}, such as {{normal: [5, 1]}}"
    name, numbers = _parts(distribution)
    wanted = _DRAWS[name][0]
    if len(numbers) != wanted:
        return f"{name} takes {wanted} number(s), in ms"
    if min(numbers) < 0:
        return f"{name}: no number of milliseconds is below 0"
    if name == "uniform" and numbers[0] > numbers[1]:
        return "uniform: the least delay comes first"
    return None


def draws(distribution: Distribution, seed: str) -> Iterator[float]:
    """Delays in ms without end, to a microsecond; the same for the same seed."""
    name, numbers = _parts(distribution)
    source = random.Random(seed)
    while True:
        yield round(max(_DRAWS[name][1](source, *numbers), 0.0), 3)


def wait(since_ns: int, delay_ms: float) -> None:
    """Until `delay_ms` after `since_ns` on the monotonic clock, and not less: the delay that was asked for."""
    due_ns = since_ns + round(delay_ms * 1e6)
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def draws_seed(seed: int, hold: str) -> str:
    """The seed of one step's draws: that of the run, and the step's own id."""
    return f"{seed}/{hold}"


def in_words(distribution: Distribution) -> str:
    """`later by normal 5, 1 ms`."""
    name, numbers = _parts(distribution)
    return f"later by {name} {', '.join(f'{number:g}' for number in numbers)} ms"


def _parts(distribution: Distribution) -> tuple[str, list[float]]:
    name, value = next(iter(distribution.items()))
    return name, [float(number) for number in (value if isinstance(value, list) else [value])]
