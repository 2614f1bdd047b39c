"""TLA+ values: every spelling that TLC has, what is equal, and what is refused where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_samples import refusal

from racelab.errors import TraceError
from racelab.traces.values import DEPTH_MAX, Function, ModelValue, Unlisted, Value, function, parse, show


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TRUE", True),
        ("-12", -12),
        ("57896044618658097711785492504343953926634992332820282019728792003956564819967", 2**255 - 1),
        ('"a b"', "a b"),
        (r'"quote \" and back \\ slash @@ :> /\\ x = 3"', 'quote " and back \\ slash @@ :> /\\ x = 3'),
        (r'"\n\t\f\r"', "\n\t\f\r"),
        ("m1", ModelValue("m1")),
        ("Inst!p_1", ModelValue("Inst!p_1")),
        ("2PC", ModelValue("2PC")),
        ("<<>>", ()),
        ("<< >>", ()),
        ('<<1, -2, "a b">>', (1, -2, "a b")),
        ("<<m1, {}>>", (ModelValue("m1"), frozenset())),
        ("{4, TRUE}", frozenset({4, True})),
        ("1..4", frozenset({1, 2, 3, 4})),
        ("-1..1", frozenset({-1, 0, 1})),
        ("4..1", frozenset()),
        ("[a |-> 1, b_c |-> <<>>]", Function({"a": 1, "b_c": ()})),
        ("(m1 :> 1 @@ m2 :> -5)", Function({ModelValue("m1"): 1, ModelValue("m2"): -5})),
        ('("r-1" :> 0 @@ "r 2" :> 0)', Function({"r-1": 0, "r 2": 0})),
        ("( 0 :> {<<0>>} @@\n  1 :> {} )", Function({0: frozenset({(0,)}), 1: frozenset()})),
        ("((1))", 1),
        ("SUBSET 1..3", Unlisted("SUBSET", (frozenset({1, 2, 3}),))),
        ("[{1} -> {2}]", Unlisted("->", (frozenset({1}), frozenset({2})))),
        ("[a: {1}, b: {2}]", Unlisted(":", ("a", frozenset({1}), "b", frozenset({2})))),
        ("1..2 \\cup {5}", Unlisted("\\cup", (frozenset({1, 2}), frozenset({5})))),
        ("1..1000000000", Unlisted("..", (1, 1_000_000_000))),
    ],
)
def test_each_spelling_has_its_value(text: str, value: Value) -> None:
    parsed = parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_sequence_is_a_function_on_1_to_n_and_a_record_one_on_strings() -> None:
    assert parse('(1 :> "a" @@ 2 :> "b")') == parse('<<"a", "b">>')
    assert parse('("k" :> 1)') == parse("[k |-> 1]")
    assert parse("(0 :> 1)") != parse("<<1>>")


def test_equal_values_are_one_key() -> None:
    table = {parse("[a |-> {1, 2}, b |-> <<m>>]"): "found"}
    assert table[parse("[b |-> <<m>>, a |-> 1..2]")] == "found"
    assert parse('"m"') not in {parse("m")}


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("", 7, 5, "a value"),
        ("<<1,", 7, 9, "a value"),
        ("<<1 2>>", 7, 9, "',' or '>>'"),
        ("<<1,\n  ?>>", 8, 3, "a value"),
        ('"abc', 7, 5, "closed"),
        (r'"\q"', 7, 5, "escapes"),
        ('"\\"', 7, 5, "closed"),
        ("[a |-> 1, a |-> 2]", 7, 15, "stands once"),
        ("[a 1]", 7, 8, "'->'"),
        ("(1 :> 2 @@", 7, 15, "a value"),
        ("(1 :> 2 @@ 1 :> 3)", 7, 6, "a key that stands once"),
        ("{1, 1}", 7, 6, "once"),
        ("{1, TRUE}", 7, 6, "once"),
        ("1 2", 7, 7, "the end"),
        ("9" * 5_000, 7, 5, "digits"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(text, file="t.txt", line=7, column=5)
    assert (caught.value.file, caught.value.line) == ("t.txt", line)
    assert caught.value.what.startswith(f"column {column}: expected ")
    assert expected in caught.value.what


@pytest.mark.parametrize("opened", ["(", "<<", "{", "[a |-> ", "SUBSET ", "(1 :> "])
def test_deep_nesting_is_refused_and_does_not_end_the_process(opened: str) -> None:
    with pytest.raises(TraceError, match=f"at most {DEPTH_MAX} levels"):
        parse(opened * 100_000)


def test_nesting_up_to_the_bound_is_read() -> None:
    value = parse("<<" * DEPTH_MAX + ">>" * DEPTH_MAX)
    for _ in range(DEPTH_MAX - 1):
        assert isinstance(value, tuple)
        (value,) = value
    assert value == ()


@pytest.mark.parametrize("text", ['"' + '\\"' * 200_000, "<" * 200_000, "-" * 200_000, "1..1" + " \\cup 1" * 50_000])
def test_a_long_wrong_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(TraceError):
        parse(text)


_names = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in ("TRUE", "FALSE"))
_scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=8), _names.map(ModelValue))


def _kind(value: Value) -> tuple[str, Value]:
    return type(value).__name__, value


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    whole = inner.filter(lambda value: not isinstance(value, bool))  # Python takes True for 1 in a set
    return st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(whole, max_size=4),
        st.dictionaries(_names, inner, min_size=1, max_size=4).map(Function),
        st.dictionaries(whole, inner, min_size=1, max_size=4).map(lambda items: function(list(items.items()))),
        inner.map(lambda value: Unlisted("SUBSET", (value,))),
    )


values = st.recursive(_scalars, _containers, max_leaves=20)


@given(values)
def test_what_is_shown_is_read_back_equal(value: Value) -> None:
    assert _kind(parse(show(value))) == _kind(value)


@given(values, st.integers(min_value=0, max_value=200))
def test_a_value_cut_anywhere_is_a_value_or_an_error(value: Value, length: int) -> None:
    refused = refusal(lambda: parse(show(value)[:length]))
    assert refused is None or refused.line is not None


@given(st.text(alphabet='<>[]{}()|-:@.,"\\ab1 \nSUBSET', max_size=60))
def test_no_text_crashes_the_parser(text: str) -> None:
    refused = refusal(lambda: parse(text))
    if refused is None:
        value = parse(text)
        assert parse(show(value)) == value
    else:
        assert 1 <= (refused.line or 0) <= text.count("\n") + 1
