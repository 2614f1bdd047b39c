"""Which binding fits a trace: by the modules that it names and the variables that it has."""

from __future__ import annotations

from racelab.binding import document
from racelab.binding.document import Binding
from racelab.errors import BindingError
from racelab.shipped import shipped
from racelab.traces.trace import Trace


def all_shipped() -> list[Binding]:
    """Every binding that comes with racelab, by name."""
    return [document.load(path) for path in sorted(shipped("scenarios", "bindings").glob("*.yaml"))]


def find(trace: Trace) -> Binding:
    """The one shipped binding that fits.

    Raises:
        BindingError: none fits, or two do.
    """
    bindings = all_shipped()
    missing = {binding.name: misfit(trace, binding) for binding in bindings}
    fitting = [binding for binding in bindings if missing[binding.name] is None]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        what = f"bindings {' and '.join(binding.name for binding in fitting)} both fit this trace"
    else:
        tried = "".join(f"\n  tried {name}: {why}" for name, why in missing.items())
        what = f"no binding fits {trace.modules[0] if trace.modules else 'this trace'}{tried}"
    hint = "name one with --binding FILE; docs/bindings.md says how to write it"
    raise BindingError(what, file=trace.file, line=trace.line, next=hint)


def check(trace: Trace, binding: Binding) -> None:
    """Raise BindingError if a binding that the user named does not fit."""
    why = misfit(trace, binding)
    if why is not None:
        raise BindingError(
            f"binding {binding.name} does not fit: {why}",
            file=trace.file,
            line=trace.line,
            next=f"mend 'fits' in {binding.file}",
        )


def misfit(trace: Trace, binding: Binding) -> str | None:
    """Why a binding does not fit, or None if it does. A format without modules fits by variables."""
    names = {variable.rsplit("::", 1)[-1] for variable in trace.variables}
    lacking = [variable for variable in binding.fits.variables if variable not in names]
    if trace.modules and not set(trace.modules) & set(binding.fits.modules):
        return f"it is for module {' or '.join(binding.fits.modules)}"
    if lacking:
        return f"the trace has no variable {', '.join(lacking)}"
    if not trace.modules and not binding.fits.variables:
        return "the trace names no module"
    return None


__all__ = ["all_shipped", "check", "find", "misfit"]
