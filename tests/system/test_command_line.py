"""The command line as a user meets it: verdicts, files, messages, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import leaving_nothing

LATE_WRITE = "scenarios/late-write-after-timeout.yaml"
RUN_KEYS = {
    "scenario",
    "target",
    "policy",
    "without",
    "cluster",
    "transport",
    "seed",
    "runs",
    "verdict",
    "expected",
    "label",
    "specs",
    "evidence",
    "injections",
    "tokens",
    "checks",
    "blocked_at",
    "run_dir",
}


def racelab(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "racelab.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=110)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(lines[0])
    return said


def test_a_counterexample_is_reproduced_and_prevented_and_nothing_is_left(root: Path, tmp_path: Path) -> None:
    with leaving_nothing():
        counterexample = "scenarios/counterexamples/late-write-after-timeout.txt"
        done = racelab(
            root, "run", counterexample, "--policy", "eager", "--policy", "ledger", "--json", "--results", tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        eager, ledger = answer(done)["policies"]
        assert set(eager) >= RUN_KEYS
        assert (eager["verdict"], ledger["verdict"]) == ("reproduced", "prevented")
        assert eager["specs"]["isolation"] == "violated"
        assert set(ledger["specs"].values()) == {"held"}
        assert ledger["blocked_at"]["guard"] == "drain-before-free"
        landed = [row for row in eager["evidence"] if row["spec"] == "isolation" and row["bytes"] is not None]
        assert any(str(row["writer"]).startswith("r1 ") and str(row["owner"]).startswith("r2 ") for row in landed)
        for said in (eager, ledger):
            folder = Path(said["run_dir"])
            kept = {file.name for file in folder.iterdir()}
            assert kept >= {
                "scenario.yaml",
                "env.json",
                "history.jsonl",
                "certificates.json",
                "verdict.json",
                "report.html",
            }
            checked = racelab(root, "check", folder, "--json")
            assert checked.returncode == 0
            again = answer(checked)
            assert (again["verdict"], again["specs"], again["evidence"]) == (
                said["verdict"],
                said["specs"],
                said["evidence"],
            )
        assert (folder.parent / "latest").resolve() == folder.resolve()


def test_many_runs_give_counts_and_a_rate(root: Path, tmp_path: Path) -> None:
    done = racelab(root, "run", LATE_WRITE, "--policy", "eager", "--runs", "20", "--json", "--results", tmp_path)
    said = answer(done)
    assert done.returncode == 0
    assert said["verdicts"] == {"reproduced": 20}
    assert said["rate"] == {"reproduced": 20, "of": 20}
    lines = (Path(said["run_dir"]) / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == list(range(1, 21))


def test_a_tampered_history_is_found_out(root: Path, tmp_path: Path) -> None:
    done = racelab(root, "run", LATE_WRITE, "--policy", "ledger", "--json", "--results", tmp_path)
    history = Path(answer(done)["run_dir"]) / "history.jsonl"
    lines = history.read_text().splitlines()
    committed = next(number for number, line in enumerate(lines) if '"kind":"committed"' in line)
    event = json.loads(lines[committed])
    event["data"]["fingerprints"][0][5] = "0" * 16
    lines[committed] = json.dumps(event)
    history.write_text("\n".join(lines) + "\n")
    checked = racelab(root, "check", history.parent, "--json")
    said = answer(checked)
    assert said["specs"]["integrity"] == "violated"
    assert checked.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_mid_run_leaves_nothing(root: Path, tmp_path: Path, number: signal.Signals) -> None:
    with leaving_nothing():
        command = [
            sys.executable,
            "-u",
            "-m",
            "racelab.cli",
            "run",
            LATE_WRITE,
            "--runs",
            "100000",
            "--results",
            tmp_path,
        ]
        with subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            assert any("advance the clock" in line for line in process.stdout)
            os.kill(process.pid, number)
            _, said = process.communicate(timeout=60)
        assert process.returncode in (130, 143), said


def refused(root: Path, *arguments: str | Path, code: int = 2) -> dict[str, Any]:
    """The `error` object of a refused command, which also has a message for people and no stack trace."""
    plain = racelab(root, *arguments)
    assert plain.returncode == code, plain.stdout + plain.stderr
    assert "Traceback" not in plain.stderr
    assert plain.stderr.startswith("racelab: ")
    done = racelab(root, *arguments, "--json")
    assert done.returncode == code
    error: dict[str, Any] = answer(done)["error"]
    assert error["what"]
    assert error["what"] in plain.stderr
    return error


def test_wrong_input_is_one_message_with_its_place(root: Path, tmp_path: Path) -> None:
    scenario = (root / LATE_WRITE).read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(scenario.replace("- submit: r1", "- sumbit: r1"))
    error = refused(root, "run", wrong)
    assert (error["file"], error["line"]) == (str(wrong), 1 + scenario[: scenario.index("- submit: r1")].count("\n"))
    torn = tmp_path / "torn.txt"
    whole = (root / "scenarios/counterexamples/late-write-after-timeout.txt").read_text()
    torn.write_text(whole[: whole.index("State 3") + 60])
    error = refused(root, "run", torn)
    assert error["file"] == str(torn)
    assert error["line"]
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text(scenario.replace("count: 2}", "count: 2, mechanism: gremlins}"))
    assert "gremlins" in refused(root, "run", unknown)["what"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", LATE_WRITE, "--policy", "hopeful"], "hopeful"),
        (["run", LATE_WRITE, "--policy", "eager", "--without", "drain-before-free"], "drain-before-free"),
        (["run", LATE_WRITE, "--target", "dynamo"], "dynamo"),
        (["run", LATE_WRITE, "--cluster", "moon"], "moon"),
        (["run", "nowhere.yaml"], "cannot be read"),
        (["run", LATE_WRITE, "--fast"], "--fast"),
        (["run", LATE_WRITE, "--runs", "0"], "--runs"),
        (["rum"], "rum"),
        (["check", "results/none"], "no run"),
        (["list", "wishes"], "wishes"),
    ],
)
def test_wrong_usage_is_one_message(root: Path, arguments: list[str], word: str) -> None:
    assert word in refused(root, *arguments)["what"]


def cluster_file(root: Path, tmp_path: Path, old: str, new: str) -> Path:
    text = (root / "clusters/local.yaml").read_text()
    assert old in text
    changed = tmp_path / "cluster.yaml"
    changed.write_text(text.replace(old, new))
    return changed


def test_a_taken_gate_port_is_named(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = cluster_file(root, tmp_path, "broker: embedded", f"broker: embedded\ngate-ports: {{bus: {port}}}")
        with leaving_nothing():
            error = refused(root, "run", LATE_WRITE, "--cluster", cluster, "--results", tmp_path, code=4)
            assert str(port) in error["what"]


def test_a_missing_broker_is_named(root: Path, tmp_path: Path) -> None:
    cluster = cluster_file(root, tmp_path, "broker: embedded", "broker: 127.0.0.1:1")
    error = refused(root, "run", LATE_WRITE, "--cluster", cluster, "--results", tmp_path, code=4)
    assert "127.0.0.1:1" in error["what"]


def test_doctor_finds_what_this_machine_has(root: Path) -> None:
    done = racelab(root, "doctor", "--json")
    said = answer(done)
    assert done.returncode == 0
    assert said["ready"]
    here = {finding["part"]: finding["here"] for finding in said["findings"]}
    assert here["mooncake"]
    assert here["ray"]


@pytest.mark.parametrize("command", ["run", "matrix", "import", "check", "report", "model", "list", "doctor"])
def test_every_command_has_help_with_an_example(root: Path, command: str) -> None:
    done = racelab(root, command, "--help")
    assert done.returncode == 0
    assert f"racelab {command}" in done.stdout


def test_lists_name_first(root: Path) -> None:
    for what, name in (("scenarios", "late-write-after-timeout"), ("policies", "ledger"), ("injectors", "wire")):
        assert name in [line.split()[0] for line in racelab(root, "list", what).stdout.splitlines()]
        done = racelab(root, "list", what, "--json")
        assert name in [row["name"] for row in json.loads(done.stdout)]
