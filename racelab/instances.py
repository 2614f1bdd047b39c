"""The instances of a lab by name: `prefill` and `decode`, and where it has several, `prefill-2`, `decode-3`."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["prefill", "decode"]

ROLES: tuple[Role, ...] = get_args(Role)

INSTANCES_MAX = 4
"""Of one role in one lab."""


def named(role: Role, count: int) -> list[str]:
    """The first `count` instances of a role."""
    return [role, *(f"{role}-{number}" for number in range(2, count + 1))]


def role_of(name: str) -> Role:
    """What an instance is."""
    return next(role for role in ROLES if name.partition("-")[0] == role)


def mark_of(name: str) -> str:
    """What tells things that an instance numbers from those of its namesakes: nothing for the first of its role."""
    number = name.partition("-")[2]
    return f".{number}" if number else ""
