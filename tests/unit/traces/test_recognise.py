"""The content says which format it is; nothing that can be in a file crashes a reader."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_samples import SAMPLES, refusal, text_of

from racelab.errors import TraceError
from racelab.traces import recognise

FILES = sorted(path for path in SAMPLES.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_sample_is_read_by_the_reader_of_its_folder_whatever_its_name(path: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "x"
    renamed.write_bytes(path.read_bytes())
    if path.name in ("no-error.txt", "assert-fails.txt"):
        refused = refusal(lambda: recognise.read_all(renamed))
        assert refused is not None
        assert refused.line is not None
        return
    traces = recognise.read_all(renamed)
    assert {trace.format for trace in traces} == {path.parent.name}
    assert all(trace.steps for trace in traces)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_what_a_windows_shell_writes_is_read(encoding: str, tmp_path: Path) -> None:
    text = text_of("tlc-text/late.txt")
    (tmp_path / "t.txt").write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert recognise.read(tmp_path / "t.txt").steps == recognise.read_text(text, "t.txt")[0].steps


def test_bytes_that_are_no_text_in_a_count_do_not_matter(tmp_path: Path) -> None:
    content = text_of("tlc-text/late.txt").encode().replace(b"61 states generated", b"61\xa0061 states generated")
    (tmp_path / "t.txt").write_bytes(content)
    assert len(recognise.read(tmp_path / "t.txt").steps) == 5


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (codecs.BOM_UTF16_LE, "is empty"),
        (b"hello", "no format"),
        (bytes(range(256)), "no format"),
        (b"\x7fELF\x00\x00", "no format"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_formats_that_are(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match=what) as caught:
        recognise.read(tmp_path / "t")
    assert "TLC text" in (caught.value.next or "")


@pytest.mark.parametrize("name", ["tlc-text/late.txt", "spin/short.txt"])
@pytest.mark.parametrize("before", ["2026-12-01T10:00:00.1Z ", "[10:00:00] ", "\x1b[31m"])
def test_a_log_with_something_before_each_line_is_named(name: str, before: str) -> None:
    text = "".join(before + line for line in text_of(name).splitlines(keepends=True))
    with pytest.raises(TraceError) as caught:
        recognise.read_text(text, "ci.log")
    assert repr(before)[1:-1] in str(caught.value)
    assert "before each line" in (caught.value.next or "")


def test_a_compressed_file_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(text_of("tlc-text/late.txt").encode()))
    with pytest.raises(TraceError, match="gzip") as caught:
        recognise.read(tmp_path / "t.txt.gz")
    assert "gunzip" in (caught.value.next or "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        recognise.read(tmp_path / "nothing.txt")
    with pytest.raises(TraceError, match="cannot be read"):
        recognise.read(tmp_path)


def read_or_refuse(text: str) -> None:
    refused = refusal(lambda: recognise.read_text(text, "t"))
    assert refused is None or (refused.line is not None and refused.next)


@given(st.sampled_from(FILES), st.data())
def test_a_piece_of_a_file_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    read_or_refuse(text[begin:end])


@given(st.sampled_from(FILES), st.data())
def test_a_file_with_something_else_in_it_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    put = data.draw(st.one_of(st.text(max_size=20), st.sampled_from(['"', "<<", "\n\n", "{", "@@", "State 2: ", "-"])))
    read_or_refuse(text[:at] + put + text[at + length :])


@given(st.text(), st.sampled_from(sorted(recognise.FORMATS)))
def test_no_text_crashes_a_reader(text: str, name: str) -> None:
    refused = refusal(lambda: recognise.FORMATS[name](text, "t"))
    assert refused is None or refused.line is not None
