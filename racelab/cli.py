"""The command line. Every command takes `--json`, and prints exactly one JSON object with it.

Exit codes: 0 as expected, 1 not as expected, 2 bad input or usage, 3 diverged or inconclusive,
4 the lab itself failed. Ctrl-C ends everything that was started and gives 130.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from racelab.errors import EXIT_EXPECTED, EXIT_INPUT, EXIT_LAB, EXIT_UNEXPECTED, RacelabError, UsageError

app = typer.Typer(
    name="racelab",
    help="Force a model checker's counterexample onto real prefill and decode instances, and judge what happens.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_UsageErrors: type[typer.BadParameter] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)
"""What typer raises for a wrong command line; it does not export the name."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
Results = Annotated[Path, typer.Option(help="Where run folders go.")]
Binding = Annotated[Path | None, typer.Option(help="A binding of your own, if none that ships fits.")]
Source = Annotated[Path | None, typer.Option(help="The folder with the model's modules.")]
Labs = Annotated[int, typer.Option(min=1, help="Labs side by side, among which many runs are shared out.")]
ControlName = Literal["no-fault", "armed-but-passing", "held-without-reuse"]
ClusterName = Annotated[str, typer.Option("--cluster", help="A cluster by name, or a path to its YAML file.")]


def _help(text: str, *examples: str) -> dict[str, Any]:
    return {"help": text, "epilog": "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])}


@app.command(
    **_help(
        "Run a scenario, or a counterexample, and judge it.",
        "racelab run scenarios/late-write-after-timeout.yaml --policy eager",
        "racelab run counterexample.txt --policy eager --policy ledger",
        "racelab run scenarios/clean-serving.yaml --runs 1000 --labs 2 --json",
    )
)
def run(
    scenario: Annotated[Path, typer.Argument(help="A scenario (YAML) or a model checker's output.")],
    policy: Annotated[
        list[str] | None, typer.Option(help="Guards to run under, by name or a file of your own; may be repeated.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A guard to take away; may be repeated.")] = None,
    control: Annotated[
        ControlName | None, typer.Option(help="A control of the scenario instead: what is left without its fault.")
    ] = None,
    glue_fault: Annotated[
        str | None, typer.Option(help="A known fault between engine and ledger, to see that it is found.")
    ] = None,
    stop_on_violation: Annotated[
        bool,
        typer.Option(
            "--stop-on-violation", help="End the schedule where the ledger first notices that it is violated."
        ),
    ] = False,
    target: Annotated[str, typer.Option(help="The system under test.")] = "reference",
    cluster: ClusterName = "local",
    runs: Annotated[int, typer.Option(min=1, help="How often, on warm instances.")] = 1,
    labs: Labs = 1,
    seed: Annotated[int, typer.Option(help="Seeds the prompts.")] = 0,
    results: Results = Path("results"),
    binding: Binding = None,
    source: Source = None,
    json: Json = False,
) -> None:
    """Run a scenario or a counterexample."""
    from racelab import running
    from racelab.campaign import controls

    policies = policy or ["ledger"]
    wanted = running.resolve(scenario, binding, source, running.surroundings(target, policies, cluster))
    if control is not None:
        wanted = controls.control(wanted, control)
    asked = running.Asked(
        wanted=wanted,
        given=str(scenario),
        policies=policies,
        without=tuple(without or ()),
        control=control,
        glue_fault=glue_fault,
        stop_on_violation=stop_on_violation,
        target=target,
        cluster=cluster,
        runs=runs,
        labs=labs,
        seed=seed,
        results=results,
    )
    answer, code = running.run(asked, quiet=json)
    if json:
        _print_json(answer)
    raise typer.Exit(code)


@app.command(
    **_help(
        "Play scenarios under every policy, and with each guard taken away. Each cell is kept as soon as it is played: "
        "if this is interrupted, the same command goes on from there, unless what it plays or racelab has changed.",
        "racelab matrix",
        "racelab matrix --labs 2",
        "racelab matrix scenarios/late-write-after-timeout.yaml --runs 10 --json",
        "racelab matrix --dilemma",
    )
)
def matrix(
    scenario: Annotated[list[Path] | None, typer.Argument(help="Scenarios; all that name a guard if left out.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Policies, by name or files of your own; all if left out.")
    ] = None,
    dilemma: Annotated[
        bool,
        typer.Option("--dilemma", help="One counterexample: policies against the four specifications, with a picture."),
    ] = False,
    target: Annotated[str, typer.Option(help="The system under test.")] = "reference",
    cluster: ClusterName = "local",
    runs: Annotated[int, typer.Option(min=1, help="How often each cell; all must agree.")] = 1,
    labs: Labs = 1,
    seed: Annotated[int, typer.Option(help="Seeds the prompts.")] = 0,
    results: Results = Path("results"),
    json: Json = False,
) -> None:
    """Play scenarios against policies."""
    from racelab.campaign.command import Asked, run_dilemma, run_matrix

    asked = Asked(scenario or [], policy or [], target, cluster, runs, seed, results, labs)
    answer, code = (run_dilemma if dilemma else run_matrix)(asked, quiet=json)
    if json:
        _print_json(answer)
    raise typer.Exit(code)


@app.command(
    **_help(
        "Run a scenario on every rung of the transport ladder that this machine has, side by side.",
        "racelab ladder scenarios/late-write-after-timeout.yaml",
    )
)
def ladder(
    scenario: Annotated[Path, typer.Argument(help="A scenario (YAML) or a model checker's output.")],
    policy: Annotated[list[str] | None, typer.Option(help="Guards to run under; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Seeds the prompts.")] = 0,
    results: Results = Path("results"),
    binding: Binding = None,
    source: Source = None,
    json: Json = False,
) -> None:
    """Climb the transport ladder."""
    from racelab import running
    from racelab.campaign.ladder import climb, table

    policies = policy or ["eager", "ledger"]
    wanted = running.resolve(scenario, binding, source, running.surroundings("reference", policies, None))
    rungs, code = climb(wanted, policies, seed=seed, results=results, given=str(scenario))
    if json:
        _print_json({"scenario": wanted.scenario, "rungs": msgspec.to_builtins(rungs)})
    else:
        Console().print(table(rungs))
    raise typer.Exit(code)


@app.command(
    name="import",
    **_help(
        "Turn a model checker's counterexample into a scenario.",
        "racelab import counterexample.txt -o scenario.yaml",
        "racelab import counterexample.txt --explain",
    ),
)
def import_(
    counterexample: Annotated[Path, typer.Argument(help="What the model checker wrote.")],
    binding: Binding = None,
    source: Source = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say of each step what it became, and why.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the scenario here.")] = None,
    json: Json = False,
) -> None:
    """Turn a counterexample into a scenario."""
    from racelab.importing import import_counterexample
    from racelab.results import RunFolder
    from racelab.scenario import dump

    imported = import_counterexample(counterexample, binding, source)
    text = dump(imported.scenario)
    if output is not None:
        RunFolder(output.parent).text(output.name, text)
    if json:
        _print_json(
            {
                "scenario": msgspec.to_builtins(imported.scenario),
                "binding": imported.binding,
                "explain": msgspec.to_builtins(imported.explain),
                "file": str(output) if output is not None else None,
            }
        )
        return
    if explain:
        for line in imported.explain:
            typer.echo(str(line))
        typer.echo("")
    typer.echo(text if output is None else f"wrote {output}", nl=output is not None)


@app.command(
    **_help(
        "Derive a run's verdict anew, from its folder alone.",
        "racelab check results/runs/late-write-after-timeout/latest",
        "racelab check RUN --json",
    )
)
def check(
    run: Annotated[Path, typer.Argument(help="A run folder, or the folder of a scenario's runs.")],
    json: Json = False,
) -> None:
    """Judge a recorded run again."""
    from racelab import running

    verdict, code = running.check(run)
    if json:
        _print_json(verdict)
    else:
        running.show_check(run, verdict)
    raise typer.Exit(code)


@app.command(
    **_help(
        "Write a counterexample, or a recorded run, in a format of others: itf, ndjson, perfetto.",
        "racelab export counterexample.txt --to itf -o counterexample.itf.json",
        "racelab export results/runs/late-write-after-timeout/latest --to perfetto -o trace.json",
        "racelab export results/runs/late-write-after-timeout/latest --to ndjson -o again.ndjson",
    )
)
def export(
    source: Annotated[Path, typer.Argument(help="A run folder, or what a model checker wrote.")],
    to: Annotated[str, typer.Option("--to", help="itf, ndjson, or perfetto (runs only).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write it here.")],
    json: Json = False,
) -> None:
    """Write a counterexample or a run in another format."""
    from racelab.exporting import export

    export(source, to, output)
    if json:
        _print_json({"file": str(output)})
    else:
        typer.echo(f"wrote {output}")


@app.command(
    **_help(
        "Draw a run's report again, from its folder alone.",
        "racelab report results/runs/late-write-after-timeout/latest",
    )
)
def report(
    path: Annotated[Path, typer.Argument(help="A run folder, or the folder of a scenario's runs.")],
    json: Json = False,
) -> None:
    """Draw a report again."""
    from racelab.report.page import write
    from racelab.results import find_run

    written = str(write(find_run(path)))
    if json:
        _print_json({"file": written})
    else:
        typer.echo(written)


@app.command(
    **_help(
        "Check a TLA+ model with TLC and write its counterexample.",
        "racelab model scenarios/models/PdLedger.tla",
        "racelab model scenarios/models/PdLedger.tla --without drain-before-free -o counterexample.txt",
    )
)
def model(
    module: Annotated[Path, typer.Argument(help="The TLA+ module.")],
    config: Annotated[Path | None, typer.Option(help="TLC's configuration; beside the module if left out.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="A guard to take away; may be repeated.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the counterexample here.")] = None,
    jar: Annotated[Path | None, typer.Option(help="A tla2tools.jar of your own.")] = None,
    java: Annotated[Path | None, typer.Option(help="A java of your own.")] = None,
    json: Json = False,
) -> None:
    """Check a model with TLC."""
    from racelab.model.tlc import check_model

    result = check_model(
        module, config, output, without=without or (), jar=jar, java=java, progress=None if json else _progress
    )
    if json:
        _print_json(msgspec.to_builtins(result))
    else:
        typer.echo(result.in_words())


@app.command(
    **_help(
        "Replay recorded runs through the specification: is every event explained by a step of the model?",
        "racelab validate results/runs/clean-serving/latest",
        "racelab validate RUN RUN --tlc --json",
    )
)
def validate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of a scenario's runs.")],
    tlc: Annotated[bool, typer.Option("--tlc", help="Replay through TLC too.")] = False,
    model: Annotated[Path | None, typer.Option(help="A TLA+ module for TLC in place of PdLedger.tla.")] = None,
    jar: Annotated[Path | None, typer.Option(help="A tla2tools.jar of your own.")] = None,
    java: Annotated[Path | None, typer.Option(help="A java of your own.")] = None,
    json: Json = False,
) -> None:
    """Replay runs through the specification."""
    from racelab.model.validate import validate

    validated = validate(runs, with_tlc=tlc, model=model, jar=jar, java=java)
    if json:
        _print_json(validated.to_json())
    else:
        typer.echo(validated.in_words())
    raise typer.Exit(EXIT_EXPECTED if validated.ok else EXIT_UNEXPECTED)


@app.command(
    name="list",
    **_help(
        "List what there is: scenarios, policies, guards, targets, injectors, fences, checkers, clusters or runs.",
        "racelab list scenarios",
        "racelab list runs --json",
    ),
)
def list_(
    what: Annotated[str, typer.Argument(help="What to list.")] = "scenarios",
    results: Results = Path("results"),
    json: Json = False,
) -> None:
    """List what there is."""
    from racelab.listing import rows

    found = rows(what, results)
    if json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    for row in found:
        name, *rest = row.values()
        shown = (", ".join(value) if isinstance(value, list) else str(value) for value in rest if value)
        typer.echo("  ".join([str(name), *shown]))


@app.command(**_help("Say what is here, what is missing, and what to do.", "racelab doctor", "racelab doctor --json"))
def doctor(cluster: ClusterName = "local", json: Json = False) -> None:
    """Probe this machine."""
    from racelab.doctor import diagnose
    from racelab.lab.cluster import load

    diagnosis = diagnose(load(cluster))
    if json:
        _print_json(msgspec.to_builtins(diagnosis))
    else:
        table = Table(box=None, pad_edge=False)
        for heading in ("", "part", "detail", "needed for", "what to do"):
            table.add_column(heading)
        for finding in diagnosis.findings:
            mark = "ok" if finding.here else "MISSING" if finding.needed else "-"
            table.add_row(mark, finding.part, finding.detail, finding.what_for, finding.next or "")
        Console().print(table)
        typer.echo(f"ready for {cluster}" if diagnosis.ready else f"not ready for {cluster}")
    if not diagnosis.ready:
        raise typer.Exit(EXIT_LAB)


cluster_app = typer.Typer(
    no_args_is_help=True,
    **_help(
        "Bring up, look at or end a cluster that has a machine of its own: the Soft-RoCE VM.",
        "racelab cluster up softroce",
        "racelab cluster status softroce --json",
        "racelab cluster down softroce",
    ),
)
app.add_typer(cluster_app, name="cluster")
MachineName = Annotated[str, typer.Argument(help="The cluster: softroce.")]


@cluster_app.command(
    **_help(
        "Make the machine's files once (about 100 MB of Debian packages, no root), boot it, and leave it running.",
        "racelab cluster up softroce",
        "racelab cluster up softroce --rebuild",
    )
)
def up(
    name: MachineName = "softroce",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make its files anew.")] = False,
    json: Json = False,
) -> None:
    """Bring a cluster up."""
    from racelab.vm import commands

    _show_cluster(commands.up(name, _progress, rebuild=rebuild), json)


@cluster_app.command(**_help("Say whether it is up, and what is in it.", "racelab cluster status softroce --json"))
def status(name: MachineName = "softroce", json: Json = False) -> None:
    """Look at a cluster."""
    from racelab.vm import commands

    _show_cluster(commands.status(name), json)


@cluster_app.command(
    **_help(
        "End it. Its files stay in the user's cache, so that it is up again within a minute.",
        "racelab cluster down softroce",
        "racelab cluster down softroce --purge",
        "racelab cluster down softroce --force",
    )
)
def down(
    name: MachineName = "softroce",
    purge: Annotated[bool, typer.Option("--purge", help="Remove its files from the cache too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="End it even if another process uses it.")] = False,
    json: Json = False,
) -> None:
    """End a cluster."""
    from racelab.vm import commands

    _show_cluster(commands.down(name, purge=purge, force=force), json)


def _show_cluster(found: dict[str, Any], json: bool) -> None:
    if json:
        _print_json(found)
    else:
        from racelab.vm.commands import in_words

        typer.echo(in_words(found))


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _print_json(data: Any) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")


def _fail(error: RacelabError, json: bool) -> int:
    if json:
        _print_json({"error": error.to_json()})
    else:
        typer.echo(f"racelab: {error}", err=True)
    return error.exit_code


def main() -> NoReturn:
    """The console command: runs a command and turns every error into one message and an exit code."""
    json = "--json" in sys.argv
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        code = app(standalone_mode=False) or 0
    except RacelabError as error:
        code = _fail(error, json)
    except _UsageErrors as error:
        said = error.format_message()
        code = _fail(UsageError(said, next="racelab --help, or racelab COMMAND --help"), json)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("racelab: interrupted; everything that was started has been ended", err=True)
        code = 130
    except BrokenPipeError:
        code = EXIT_INPUT
    sys.exit(code)


if __name__ == "__main__":
    main()
