"""Colours and line styles, for light, dark and print, as one style sheet.

Requests take hues that stay apart for the common kinds of colour blindness (after Okabe and Ito,
https://jfly.uni-koeln.de/color/); what is wrong has a shape of its own besides its colour.
"""

from __future__ import annotations

REQUEST_COLOURS = 6

_LIGHT = {
    "bg": "#ffffff",
    "panel": "#f6f7f9",
    "band": "#f7f8fa",
    "ink": "#16202b",
    "soft": "#5b6773",
    "faint": "#c9d0d8",
    "bad": "#b3123f",
    "badbg": "#fdeef2",
    "guard": "#0b6b5d",
    "guardbg": "#e8f5f2",
    "q0": "#0068b0",
    "q1": "#d98a00",
    "q2": "#00875f",
    "q3": "#9b4f96",
    "q4": "#3d9fd6",
    "q5": "#77706a",
}

_DARK = {
    "bg": "#11161c",
    "panel": "#1a2129",
    "band": "#161c23",
    "ink": "#e6ebf0",
    "soft": "#9aa7b4",
    "faint": "#3a4550",
    "bad": "#ff6b8f",
    "badbg": "#3a1622",
    "guard": "#4fd1b8",
    "guardbg": "#10332d",
    "q0": "#58b0f0",
    "q1": "#f2b340",
    "q2": "#3ccf9a",
    "q3": "#d694d1",
    "q4": "#9ad4f5",
    "q5": "#b5aca4",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def variables(scope: str) -> str:
    """The colours of `scope`, light by default and in print, dark where the reader's screen is."""
    return (
        f"{scope}{{{_variables(_LIGHT)}}}\n"
        f"@media (prefers-color-scheme: dark){{{scope}{{{_variables(_DARK)}}}}}\n"
        f"@media print{{{scope}{{{_variables(_LIGHT)}}}}}\n"
    )


def diagram_style() -> str:
    """The style of everything that a diagram draws."""
    requests = "".join(f".st .q{index}{{--q:var(--q{index})}}\n" for index in range(REQUEST_COLOURS))
    return _DIAGRAM + requests


_DIAGRAM = """
.st text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:11.5px;
fill:var(--ink)}
.st .halo{paint-order:stroke;stroke:var(--bg);stroke-width:5px;stroke-linejoin:round}
.st .wide{stroke-width:7px}
.st .soft{fill:var(--soft)}
.st .num{font-variant-numeric:tabular-nums}
.st .strong{font-weight:600}
.st .head{font-size:13px;font-weight:600}
.st .small{font-size:10.5px}
.st .end{text-anchor:end}
.st .mid{text-anchor:middle}
.st .bad{fill:var(--bad)}
.st .guard{fill:var(--guard)}
.st .life{stroke:var(--faint);stroke-width:2}
.st .band{fill:var(--band)}
.st .rule{stroke:var(--faint);stroke-width:1}
.st .phase{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}
.st .dot{fill:var(--bg);stroke:var(--soft);stroke-width:1.6}
.st .badge{fill:var(--ink)}
.st .badgeno{fill:var(--bg);font-size:10.5px;font-weight:600;text-anchor:middle}
.st .msg{stroke:var(--soft);stroke-width:1.3;stroke-dasharray:4 3;fill:none}
.st .msghead{fill:var(--soft)}
.st .wr{stroke:var(--q);stroke-width:1.9;fill:none}
.st .wrhead{fill:var(--q)}
.st .wropen{fill:var(--bg);stroke:var(--q);stroke-width:1.4}
.st .net{fill:var(--panel);stroke:var(--faint)}
.st .bar{fill:var(--bg);stroke:var(--q);stroke-width:1.6}
.st .barfill{fill:var(--q);opacity:.28}
.st .stripe{stroke:var(--q);stroke-width:2.4}
.st .own{fill:var(--q);fill-opacity:.24;stroke:var(--q);stroke-width:1.2}
.st .outline{fill:none;stroke:var(--q);stroke-width:1.2}
.st .edge{fill:var(--q)}
.st .free{fill:none;stroke:var(--faint);stroke-dasharray:2 3}
.st .hatchline{stroke:var(--q);stroke-width:1.4}
.st .hatchbg{fill:var(--q);fill-opacity:.10}
.st .land{fill:var(--q);stroke:var(--bg);stroke-width:1.5}
.st .burst{fill:var(--bad);stroke:var(--bg);stroke-width:1}
.st .lost{stroke:var(--ink);stroke-width:2;stroke-linecap:round}
.st .order{stroke:var(--faint);stroke-width:1.2;fill:none}
.st .orderhead{fill:var(--faint)}
.st .keep{fill:var(--bg);stroke:var(--guard);stroke-width:2}
.st .box{fill:var(--panel);stroke:var(--faint)}
.st .box.bad{fill:var(--badbg);stroke:var(--bad)}
.st .box.guard{fill:var(--guardbg);stroke:var(--guard)}
.st .lead{stroke:var(--soft);stroke-width:1;fill:none}
.st .lead.bad{stroke:var(--bad)}
.st .lead.guard{stroke:var(--guard)}
.st .hit{stroke:transparent;stroke-width:9;fill:none}
.st a{text-decoration:none}
"""
