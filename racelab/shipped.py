"""Where the files that come with racelab lie: scenarios, models, bindings, clusters.

A source checkout has them at its root, where people edit them; a wheel carries them inside the
package, beside this module (`force-include` in pyproject.toml puts them there).
"""

from __future__ import annotations

from pathlib import Path

from racelab.errors import MissingPartError

_PACKAGE = Path(__file__).resolve().parent


def shipped(*parts: str) -> Path:
    """The path of a shipped file or folder, such as `shipped("scenarios", "bindings")`.

    Raises:
        MissingPartError: this installation does not have it.
    """
    for root in (_PACKAGE / "shipped", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise MissingPartError(
        f"this installation of racelab lacks {'/'.join(parts)}",
        next="install the wheel anew, or run from a complete checkout",
    )


__all__ = ["shipped"]
