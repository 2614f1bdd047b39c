"""The picture of a dilemma: a strip a policy, with the late write where it fell."""

from __future__ import annotations

from xml.etree import ElementTree

import made_by_hand

from racelab.report.dilemma import Row, contested, costs, figure
from racelab.scenario import SPECIFICATIONS

HELD = dict.fromkeys(SPECIFICATIONS, "held")


def test_each_policy_has_its_strip_and_a_wrong_landing_stands_out() -> None:
    (eagerly, _), (guarded, _) = made_by_hand.eager(), made_by_hand.ledger()
    rows = [
        Row("eager", eagerly, HELD | {"isolation": "violated"}, costs(eagerly)),
        Row("ledger", guarded, HELD, costs(guarded)),
    ]
    picture = figure(rows)
    ElementTree.fromstring(picture)
    eager, ledger = picture.index(">eager<"), picture.index(">ledger<")
    assert 'class="burst"' in picture[eager:ledger]
    assert 'class="burst"' not in picture[ledger : picture.index("disc: a write lands")]
    assert "draining" in picture[ledger:]
    assert picture.count("✗ violated") == 1


def test_the_contested_page_is_where_the_first_stopped_write_goes() -> None:
    history, _ = made_by_hand.eager()
    stopped = history.by_kind["held"][0]
    assert contested(history) == stopped.page
