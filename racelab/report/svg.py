"""A drawing surface of a few lines: SVG elements as text, everything escaped."""

from __future__ import annotations

from html import escape

CHAR_PX = 6.3
"""The widest usual width of a character of 11.5 px text, to leave room for it."""


def element(tag: str, *children: str, **attributes: object) -> str:
    """`<tag ...>children</tag>`; an attribute that is None is left out, `_` in a name stands for `-`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(children)
    return f"<{tag}{given}>{inside}</{tag}>" if inside else f"<{tag}{given}/>"


def text(words: str, x: float, y: float, class_: str, **attributes: object) -> str:
    """A line of text."""
    return element("text", escape(words), x=x, y=y, class_=class_, **attributes)


def title(words: str) -> str:
    """What a pointer or a screen reader gets for the element around it."""
    return element("title", escape(words))


def line(x1: float, y1: float, x2: float, y2: float, class_: str, **attributes: object) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def _shown(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
