from __future__ import annotations

import pytest

from injectors.wire_book import Book
from injectors.wire_held import Held
from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import WriteIdentity


def write(name: str, page: int) -> WriteIdentity:
    return WriteIdentity(
        write=name, request="r1", attempt=1, chunk=0, layer=0, page=page, gen=1, address=4096 * page, bytes=4096
    )


class Desk:
    """A book, its recorder, and which writers were reset."""

    def __init__(self) -> None:
        self.recorder = Recorder("wire")
        self.book = Book(self.recorder)
        self.gone: list[str] = []
        self.reset: list[str] = []

    def stop(self, page: int) -> Held | None:
        announced = self.book.arrive(4096 * page, 4096)
        assert announced is not None
        name = announced.identity.write
        return self.book.stop(announced, lambda: self.gone.append(name), lambda both_ends: self.reset.append(name))

    def story(self) -> list[tuple[str, str]]:
        return [(event.kind, event.data["what"]) for event in self.recorder.drain() if event.kind != "armed"]


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.book.arm("h", {"request": "r1"}, 3)
    desk.book.announce([write(f"w{page}", page) for page in range(3)])
    return desk


def test_the_rule_is_settled_when_a_write_is_announced_and_not_when_it_comes() -> None:
    desk = Desk()
    desk.book.arm("h", {"request": "r1"}, 1)
    desk.book.announce([write("w0", 0), write("w1", 1)])
    desk.book.arm("later", {"page": 1}, 1)
    assert desk.stop(1) is None
    assert desk.stop(0) is not None


def test_released_writes_go_one_after_the_other_in_the_order_in_which_they_stopped(desk: Desk) -> None:
    held = [desk.stop(page) for page in (2, 0, 1)]
    assert desk.book.release("h") == ["w2", "w0", "w1"]
    for number, one in enumerate(held):
        assert one is not None
        assert desk.gone == ["w2", "w0", "w1"][: number + 1]
        assert [other.told.is_set() for other in held if other] == [n <= number for n in range(3)]
        assert one.goes_on()
        desk.book.settle(one, "landed", {"code": 0})
    order = ["w2", "w0", "w1"]
    landings = [(kind, what) for what in order for kind in ("released", "landed")]
    assert desk.story() == [("held", what) for what in order] + landings
    assert desk.book.release("h") == []


def test_the_first_of_them_goes_on_with_a_byte_changed(desk: Desk) -> None:
    payloads = [memoryview(bytearray(4096)) for _ in range(2)]
    for page, payload in enumerate(payloads):
        announced = desk.book.arrive(4096 * page, 4096)
        assert announced is not None
        desk.book.stop(announced, lambda: None, lambda both_ends: None, payload)
    with pytest.raises(LabError, match="write w0 has 4,096 bytes: none at offset 4,096"):
        desk.book.release("h", corrupt=4096)
    assert desk.book.release("h", corrupt=7) == ["w0", "w1"]
    assert [index for index, byte in enumerate(payloads[0]) if byte] == [7]
    assert not any(payloads[1])
    released = next(event for event in desk.recorder.drain() if event.kind == "released")
    assert released.data["corrupt"] == 7


def test_the_first_of_them_breaks_off(desk: Desk) -> None:
    first, second = desk.stop(0), desk.stop(1)
    assert first is not None
    assert second is not None
    with pytest.raises(LabError, match="write w0 has 4,096 bytes: it cannot be torn after 4,096"):
        desk.book.release("h", tear=4096)
    assert desk.book.release("h", tear=100) == ["w0", "w1"]
    assert desk.gone == []  # its own thread sends the part
    assert (first.torn, first.goes_on()) == (100, True)
    desk.book.settle(first, "torn", first.changed)
    assert desk.gone == ["w1"]
    told = {event.kind: event.data.get("tear") for event in desk.recorder.drain() if event.data.get("what") == "w0"}
    assert (told["released"], told["torn"]) == (100, 100)
    assert second.torn is None


def test_what_comes_after_the_release_passes(desk: Desk) -> None:
    desk.book.release("h")
    assert desk.stop(0) is None
    assert desk.story() == []


def test_a_dropped_write_is_lost_and_its_writer_reset(desk: Desk) -> None:
    held = [desk.stop(page) for page in (0, 1)]
    assert desk.book.drop("h") == ["w0", "w1"]
    assert desk.reset == ["w0", "w1"]
    assert [one.goes_on() for one in held if one] == [False, False]
    assert desk.story() == [("held", "w0"), ("held", "w1"), ("dropped", "w0"), ("dropped", "w1")]


def test_what_is_on_its_way_cannot_be_dropped(desk: Desk) -> None:
    desk.stop(0)
    desk.stop(1)
    assert desk.book.release("h") == ["w0", "w1"]
    assert desk.book.drop("h") == []
    assert desk.reset == []


def test_a_range_that_nobody_announced_is_counted(desk: Desk) -> None:
    assert desk.book.arrive(4096, 4095) is None
    assert desk.book.arrive(1, 4096) is None
    assert desk.book.unannounced == 2


def test_the_same_range_twice_under_way_is_counted_as_ambiguous(desk: Desk) -> None:
    desk.book.announce([write("again", 0)])
    first, second = desk.book.arrive(0, 4096), desk.book.arrive(0, 4096)
    assert first is not None
    assert second is not None
    assert [first.identity.write, second.identity.write] == ["w0", "again"]
    assert desk.book.ambiguous == 1


def test_a_reset_keeps_what_is_held_and_forgets_the_rest(desk: Desk) -> None:
    held = desk.stop(0)
    assert held is not None
    desk.book.arm("unused", {"page": 9}, 1)
    desk.book.arm("partly", {"page": 8}, 2)
    assert desk.book.reset(4) == {"held": ["w0"], "armed": 2}
    assert desk.recorder.incarnation == 4
    assert desk.book.arrive(4096, 4096) is None
    with pytest.raises(LabError, match="no hold 'unused' at the wire gate; armed here: h"):
        desk.book.release("unused")
    with pytest.raises(LabError, match="still holds"):
        desk.book.arm("h", {}, 1)
    assert desk.book.release("h") == ["w0"]
    desk.book.settle(held, "landed", {"code": 0})
    assert desk.book.reset(5) == {"held": [], "armed": 0}
