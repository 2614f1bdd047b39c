"""The expression language of bindings: what has a value, and why something has none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racelab.binding.expression import Expression, Malformed, Scene, Undefined, parse, word
from racelab.traces import values
from racelab.traces.values import Function, ModelValue, Value


def state(**variables: str) -> dict[str, Value]:
    return {name: values.parse(text) for name, text in variables.items()}


SCENE = Scene(
    before=state(
        req='[r1 |-> [st |-> "idle"], r2 |-> [st |-> "idle"]]',
        wire="{}",
        notes='<<"a", "b">>',
        page='<<"FREE", "FREE">>',
        owner="(p1 :> 1 @@ p2 :> 2)",
    ),
    after=state(
        req='[r1 |-> [st |-> "waiting"], r2 |-> [st |-> "idle"]]',
        wire='{[req |-> "r1", page |-> p1]}',
        notes='<<"b">>',
        page='<<"FREE", "BUSY">>',
        owner="(p1 :> 1 @@ p2 :> 2)",
    ),
    names={"r": "r1", "this": ModelValue("p2")},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("r", "r1"),
        ("req[r].st", "waiting"),
        ("old(req[r].st)", "idle"),
        ("old(req)[r].st", "idle"),
        ("req['r2'].st", "idle"),
        ("req.r2.st", "idle"),
        ("page[2]", "BUSY"),
        ("owner[this]", 2),
        ("owner['p1']", 1),
        ("changed(req)", "r1"),
        ("changed(page)", 2),
        ("gained(wire).req", "r1"),
        ("lost(notes)", "a"),
        ("first(notes)", "b"),
        ("first(old(notes))", "a"),
        ("keys(req)", frozenset({"r1", "r2"})),
        ("keys(page)", frozenset({1, 2})),
        ("req[gained(wire).req].st", "waiting"),
        ("'text'", "text"),
    ],
)
def test_what_has_a_value(text: str, value: Value) -> None:
    assert parse(text).value(SCENE) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "no 'nothing' here"),
        ("req.r3", "has no"),
        ("page[0]", "has no 0"),
        ("r.x", "has no"),
        ("changed(owner)", "no key changed"),
        ("lost(wire)", "no element went"),
        ("gained(req)", "no set or sequence"),
        ("keys(r)", "has no keys"),
        ("first(old(wire))", "has no 1"),
    ],
)
def test_what_has_none_says_why(text: str, why: str) -> None:
    with pytest.raises(Undefined, match=why):
        parse(text).value(SCENE)


@pytest.mark.parametrize(
    "text", ["", "req[", "req.", "req]", "size(req)", "changed(req", "a b", "a..b", "$", "'a", "[" * 50]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_a_key_that_json_made_a_string_is_found() -> None:
    scene = Scene({}, {"page": Function({"0": "a", "1": "b"})}, {})
    assert parse("page[0]").value(scene) == "a"


def test_words_of_strings_model_values_and_variants_are_the_same() -> None:
    variant = Function({"tag": "FREE", "value": ()})
    assert {word("FREE"), word(ModelValue("FREE")), word(variant)} == {"FREE"}
    assert (word(True), word(7)) == ("TRUE", "7")


@given(st.text(alphabet="req.[]()'1 oldchang", max_size=30))
def test_every_text_is_an_expression_or_malformed_and_every_expression_total(text: str) -> None:
    parsed: Expression | None = None
    try:
        parsed = parse(text)
    except Malformed:
        return
    try:
        parsed.value(SCENE)
    except Undefined:
        return
