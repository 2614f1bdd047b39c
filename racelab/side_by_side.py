"""Labs side by side: what many runs are shared out among.

The processes of a lab wait for each other most of the time, so that a second lab on the same cores plays nearly as
many runs again. Each is a whole lab (its own Ray, broker, gates and instances) of a process of its own, and runs of
different labs share nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from racelab.assembly import Order, Played, Workbench, open_workbench
from racelab.errors import BoundError, LabError, PeerDiedError, RacelabError, UsageError
from racelab.evidence.history import History
from racelab.lab.cluster import Cluster
from racelab.targets.target import Target

AHEAD = 3
"""Orders that a lab beside has at a time: one that it plays, and more so that it need not wait for us."""
RUN_BOUND_S = 600.0
"""Within which a lab beside answers: every wait of a run has a bound of its own, and they come to less."""
END_BOUND_S = 60.0


class LabBeside:
    """One more lab: it plays what it is given in order, in its own process, which ends with ours."""

    def __init__(self, name: str, cluster: Cluster, target: Target, logs: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.connection, theirs = context.Pipe()
        self._logs = logs
        self._process = context.Process(target=_serve, args=(theirs, cluster, target, logs), name=name)
        self._process.start()
        theirs.close()
        self._numbers: deque[int] = deque()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def has_room(self) -> bool:
        """Whether it takes another order now."""
        return len(self._numbers) < AHEAD

    @property
    def busy(self) -> bool:
        """Whether it owes an answer."""
        return bool(self._numbers)

    def give(self, number: int, order: Order) -> None:
        """Have an order played."""
        self._numbers.append(number)
        try:
            self.connection.send(order)
        except OSError:
            raise self._died() from None

    def take(self) -> tuple[int, Played]:
        """The first order that it has not answered yet, played; waits for it."""
        if not self.connection.poll(RUN_BOUND_S):
            raise BoundError(f"{self.name} did not end a run within {RUN_BOUND_S:g} s", next=f"see {self._logs}")
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(answer, dict):
            raise _error(answer)
        header, events, verdict, failure, seconds = answer
        failed = LabError(**failure) if failure is not None else None
        return self._numbers.popleft(), Played(History(header, events), verdict, failed, seconds)

    def close(self) -> None:
        """End it: what it still plays is played to its end, and its lab is ended."""
        self.connection.close()
        self._process.join(END_BOUND_S)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(END_BOUND_S)

    def _died(self) -> PeerDiedError:
        return PeerDiedError(self.name, "a run", file=self._logs)


@contextmanager
def labs_beside(count: int, cluster: Cluster, target: Target, logs: Path) -> Iterator[list[LabBeside]]:
    """So many labs beside the first one, all of which are ended at the end of the block.

    Raises:
        UsageError: the cluster has room for one lab at a time.
    """
    if count and (cluster.machine or cluster.gate_ports):
        why = "its machine" if cluster.machine else "fixed gate ports"
        raise UsageError(f"cluster {cluster.cluster} has {why}: one lab at a time", next="leave --labs out")
    with ExitStack() as stack:
        labs = []
        for number in range(2, count + 2):
            name = f"lab-{number}"
            labs.append(LabBeside(name, cluster, target, logs / name))
            stack.callback(labs[-1].close)
        yield labs


def play_each(bench: Workbench, beside: Sequence[LabBeside], orders: Iterable[Order]) -> Iterator[tuple[int, Played]]:
    """Play orders wherever there is room, and give each with its number (from 0 on) as it ends."""
    numbered = enumerate(orders)
    try:
        for number, order in numbered:
            for lab in beside:
                while lab.has_room and (more := next(numbered, None)) is not None:
                    lab.give(*more)
            yield number, bench.play(order)
            while answering := _answering(beside):
                for lab in answering:
                    yield lab.take()
        for lab in beside:
            while lab.busy:
                yield lab.take()
    except GeneratorExit:  # nobody wants the rest; a lab is asked again only once it has answered
        for lab in beside:
            while lab.busy:
                lab.take()
        raise


def _answering(beside: Sequence[LabBeside]) -> list[LabBeside]:
    """Labs that have an answer."""
    ready = wait([lab.connection for lab in beside], timeout=0) if beside else []
    return [lab for lab in beside if lab.connection in ready]


def _serve(connection: Connection[Any, Any], cluster: Cluster, target: Target, logs: Path) -> None:
    """Play what comes until nobody is there to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that asks, who then hangs up
    logs.mkdir(parents=True, exist_ok=True)
    with open_workbench(cluster, target, logs) as bench:
        while True:
            try:
                connection.send(_answer(bench, connection.recv()))
            except (EOFError, OSError):
                return


def _answer(bench: Workbench, order: Order) -> Any:
    try:
        played = bench.play(order)
    except RacelabError as error:
        return {"usage": isinstance(error, UsageError), **error.to_json()}
    failure = played.failure.to_json() if played.failure is not None else None
    return played.history.header, played.history.events, played.verdict, failure, played.seconds


def _error(answer: dict[str, Any]) -> RacelabError:
    kind = UsageError if answer.pop("usage") else LabError
    return kind(answer["what"], file=answer["file"], line=answer["line"], next=answer["next"])
