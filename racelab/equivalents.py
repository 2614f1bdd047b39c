"""What other runs of a prevented schedule say of it: the same fault elsewhere, later, and without the guard."""

from __future__ import annotations

from typing import Any

WITHOUT = "without "


def bears_out(tried: dict[str, Any]) -> bool:
    """Whether one of them is as it has to be: harmless elsewhere, and harmful without the guard."""
    if tried["what"].startswith(WITHOUT):
        return tried["verdict"] in ("reproduced", "moved")
    return tried["verdict"] in ("prevented", "not-reproduced")


def speaks_against(tried: dict[str, Any]) -> str:
    """What one that does not bear out `prevented` says of it."""
    return f"{tried['what']} gave {tried['verdict']}: {_means(tried['what'], tried['verdict'])}"


def _means(what: str, verdict: str) -> str:
    if verdict in ("diverged", "inconclusive"):
        return "that run decides nothing, and so neither does this one"
    if not what.startswith(WITHOUT):
        return "there the fault does harm, and the named guard is not the whole story"
    guard = what.removeprefix(WITHOUT)
    if verdict == "prevented":
        return f"another guard refuses it then, and {guard} is not the whole story"
    return f"nothing is violated without {guard} either, so this schedule does not show that it prevents anything"
