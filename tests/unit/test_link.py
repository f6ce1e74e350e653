"""What is asked of links, how they are shaped for it, and what is said of what they turn out to be."""

from dataclasses import replace
from itertools import chain
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.link import flows, measurement, shaping
from app.cluster.link.flows import Pieces
from app.cluster.link.measured import Flow, Star, deviations, links_of, payload_rate
from app.cluster.link.measurement import TIMES
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.errors import SettingError
from app.records.manifest import Link
from app.settings import environment, link_rates
from app.settings.links import LinkSettings, RequestedLink
from app.settings.settings import Settings

MTU = 1500
PAYLOAD = 1448 / 1514 / 8  # bytes of payload in a bit on the wire


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 1e9), ("100mbit", 1e8), ("2.5gbit", 2.5e9), ("1000kbit", 1e6), ("100gbit", 1e11), (" 1 Gbit ", 1e9)],
)
def test_a_rate_is_read(text: str, bits: float) -> None:
    assert link_rates.read_rate(text) == pytest.approx(bits)


@pytest.mark.parametrize(
    "text", ["", "1", "gbit", "1gbps", "-1gbit", "999kbit", "101gbit", "1e3mbit", "nanmbit", "1gbit;id", "٣gbit"]
)
def test_another_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number with|out of range"):
        link_rates.read_rate(text)


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [
        ("LINK_RATE", "1gb", "such as 100mbit or 2.5gbit"),
        ("LINK_RATE_BY_RANK", "2:100mbit", "such as 2=100mbit"),
        ("LINK_RATE_BY_RANK", "2=100mbit,2=1gbit", "each rank once"),
        ("LINK_RATE_BY_RANK", "2=100", "such as 2=100mbit"),
        ("LINK_DELAY", "200", "such as 200us or 1.5ms"),
        ("LINK_DELAY", "11s", "at most 10s"),
        ("LINK_LOSS", "0.1", "such as 0.1%"),
        ("LINK_LOSS", "51%", "at most 50 %"),
        ("LINK_CHECK", "lax", "strict, warn, off"),
        ("SLOW_FACTOR", "0.5", "1 to 100"),
    ],
)
def test_a_wrong_setting_is_refused_with_examples(
    name: str, value: str, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_RANK", "0")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"^invalid {name} '{value}'\\. ") as caught:
        environment.load()
    assert example in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"link_rate_by_rank": "1=1gbit,4=100mbit"}, "LINK_RATE_BY_RANK=1=1gbit,4=100mbit: .*rank 4.*0 to 3"),
        ({"slow_rank": 4}, "SLOW_RANK=4: .*rank 4.*0 to 3"),
        ({"slow_factor": 2.0}, "SLOW_FACTOR=2 has no effect without SLOW_RANK"),
    ],
)
def test_ranks_that_there_are_not_are_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        Settings.of(world_size=4, **wrong)


def test_a_rank_of_its_own_rate_keeps_the_others_delay() -> None:
    settings = LinkSettings(link_rate="1gbit", link_rate_by_rank="2=100mbit", link_delay="200us", link_loss="0.1%")
    usual = RequestedLink(1e9, link_rates.read_delay("200us"), link_rates.read_loss("0.1%"))
    assert usual.delay_seconds == pytest.approx(2e-4)
    assert usual.loss == pytest.approx(1e-3)
    assert [settings.of(rank) for rank in range(4)] == [
        usual,
        usual,
        replace(usual, bits_per_second=1e8),
        usual,
    ]


def test_without_settings_nothing_is_asked() -> None:
    assert not LinkSettings().of(0)
    assert not LinkSettings(link_rate_by_rank="2=100mbit").of(0)
    assert LinkSettings(link_rate_by_rank="2=100mbit").of_any_rank == RequestedLink(1e8)


def words(wanted: RequestedLink) -> str:
    return "\n".join(" ".join(command) for command in shaping.commands(wanted, "eth0"))


def test_both_directions_are_shaped_alike() -> None:
    lines = words(RequestedLink(1e9, 2e-4, 1e-3)).splitlines()
    for kind in ("netem", "tbf"):
        outgoing, incoming = (
            next(line for line in lines if kind in line and f" {device} " in line) for device in ("eth0", "ifb0")
        )
        assert outgoing.replace("eth0", "ifb0") == incoming
    assert "delay 200us loss 0.1000000%" in lines[1]
    assert "rate 1000000000bit burst 250000 latency 50000us" in lines[2]


def test_what_is_not_asked_is_not_touched() -> None:
    assert "netem" not in words(RequestedLink(1e8))
    assert "tbf" not in words(RequestedLink(None, 1e-3))
    assert "loss" not in words(RequestedLink(None, 1e-3))
    assert "delay" not in words(RequestedLink(None, None, 0.01))


@given(st.floats(1e6, 100e9))
def test_a_packet_always_fits_into_a_burst(rate: float) -> None:
    """Else the kernel would have to cut it up, or drop it."""
    limit = int(shaping.largest_segment(RequestedLink(rate))[1])
    headers = 66 * (limit // 1448 + 1)
    assert limit + headers <= shaping.burst_bytes(rate)


@pytest.mark.parametrize(("megabits", "most"), [(1, 3000), (2, 3000), (8, 5000), (20, 12_500), (1000, 65_536)])
def test_a_slow_link_is_not_held_for_long_by_what_the_kernel_takes_for_one_packet(megabits: int, most: int) -> None:
    """Bytes of 5 ms at most, or two packets."""
    assert shaping.largest_segment(RequestedLink(megabits * 1e6)) == ["gso_max_size", str(most)]


def test_packets_are_lost_one_by_one() -> None:
    assert shaping.largest_segment(RequestedLink(1e9, None, 0.01)) == ["gso_max_segs", "1"]


def links(
    rates: dict[int, list[float]],
    wanted: list[RequestedLink] | None = None,
    round_trips: list[float] | None = None,
    stars: list[Star] | None = None,
) -> list[Link]:
    """For each distance d, by receiver r: what came from rank r-d."""
    ranks = len(rates[1])
    flows = [
        Flow((rank - distance) % ranks, rank, rate)
        for distance, by_receiver in rates.items()
        for rank, rate in enumerate(by_receiver)
    ]
    wanted, stars = wanted or [RequestedLink()] * ranks, stars or [Star(0, 0)] * ranks
    return links_of(flows, stars, round_trips or [1e-4] * ranks, wanted, [MTU] * ranks)


def test_payload_is_what_full_packets_carry() -> None:
    assert payload_rate(1e9, MTU) == pytest.approx(1e9 * PAYLOAD)
    assert payload_rate(None, MTU) is None


def test_of_an_unshaped_link_nothing_is_expected() -> None:
    for link in links({1: [5.0, 6.0, 7.0, 8.0], 2: [6.0, 6.0, 6.0, 6.0], 3: [6.0, 6.0, 6.0, 6.0]}):
        assert (link.sent.error, link.sent.expected_bytes_per_second, link.sent.asked_bits_per_second) == (None,) * 3
        assert link.sent.measured_bytes_per_second == link.received.measured_bytes_per_second == 6.0


RATES = st.sampled_from([None, 1e8, 1e9, 1e10])


@given(st.lists(RATES, min_size=2, max_size=9))
def test_links_that_are_as_asked_deviate_nowhere(rates: list[float | None]) -> None:
    """Whatever the mixture: a flow is as fast as the slower one of its two links."""
    wanted = [RequestedLink(rate) for rate in rates]
    host = 2e9

    def flow(sender: int, receiver: int) -> float:
        return min(payload_rate(rates[rank], MTU) or host for rank in (sender, receiver))

    ranks = len(rates)
    flows = {
        distance: [flow((receiver - distance) % ranks, receiver) for receiver in range(ranks)]
        for distance in range(1, min(ranks, 4))
    }
    assert deviations(links(flows, wanted)) == []
    # A star carries what its centre's link does, or what all others together do.
    carried = [payload_rate(rate, MTU) or host for rate in rates]
    stars = [
        Star(*[min(own, sum(carried) - own)] * 2) if rates[rank] and ranks > 2 else Star(0, 0)
        for rank, own in enumerate(carried)
    ]
    assert deviations(links(flows, wanted, stars=stars)) == []


def test_a_direction_that_is_not_shaped_is_found_though_the_other_ends_are() -> None:
    """Between two ranks all looks well. When all send to rank 0 at once, three times as much comes as should."""
    good = 1e8 * PAYLOAD
    stars = [Star(good, 3 * good), *[Star(good, good)] * 3]
    found = deviations(links({distance: [good] * 4 for distance in (1, 2, 3)}, [RequestedLink(1e8)] * 4, stars=stars))
    assert [line.partition(":")[0] for line in found] == ["rank 0, receiving"]


@pytest.mark.parametrize("direction", ["sending", "receiving"])
@pytest.mark.parametrize("factor", [0.85, 1.2])
def test_a_link_that_is_not_as_asked_is_named(direction: str, factor: float) -> None:
    """Rank 2's alone, and not the links of those that it exchanges with."""
    good = 1e9 * PAYLOAD
    flows = {distance: [good] * 4 for distance in (1, 2, 3)}
    for distance in flows:
        flows[distance][(2 + distance) % 4 if direction == "sending" else 2] = good * factor
    found = deviations(links(flows, [RequestedLink(1e9)] * 4))
    if factor < 1:
        assert [line.partition(":")[0] for line in found] == [f"rank 2, {direction}"]
        assert "expected 119.55 (-15%)" in found[0]
    else:  # what came too fast has passed two links that should not have let it
        assert f"rank 2, {direction}" in [line.partition(":")[0] for line in found]


def test_an_emulation_that_is_silently_off_is_found_in_every_direction() -> None:
    found = deviations(links({1: [1e9] * 4, 2: [1e9] * 4, 3: [1e9] * 4}, [RequestedLink(1e8)] * 4))
    assert len(found) == 8


@pytest.mark.parametrize(
    ("seconds", "fits"), [(2e-4, False), (7e-3, False), (8e-3, True), (8.9e-3, True), (9.5e-3, False)]
)
def test_a_round_trip_crosses_four_delays(seconds: float, fits: bool) -> None:
    found = deviations(links({1: [1e9, 1e9]}, [RequestedLink(None, 2e-3)] * 2, [seconds] * 2))
    assert (found == []) is fits


def test_tcp_need_not_fill_a_link_that_loses_packets_but_must_not_exceed_it() -> None:
    lossy = [RequestedLink(1e9, None, 0.01)] * 2
    assert deviations(links({1: [1e7, 1e7]}, lossy)) == []
    assert deviations(links({1: [1e9, 1e9]}, lossy)) != []


def test_undoing_removes_every_device_that_was_made() -> None:
    undone = list(chain.from_iterable(shaping.undoing("lo")))
    assert {"root", "ingress", "ifb0"} <= set(undone)


@pytest.mark.parametrize("megabits", [(400, 400, 4, 400), (4, 4, 4, 4), (100, 1, 1, 1), (1000, 1000, 10), (8, None, 1)])
def test_exchanges_with_all_ranks_end_together_however_much_links_differ(megabits: tuple[float | None, ...]) -> None:
    requested = [RequestedLink(rate and rate * 1e6) for rate in megabits]
    for centre, own in enumerate(requested):
        shares = {rank: each.number * each.size for rank, each in flows._star_pieces(centre, requested).items()}
        if own.bits_per_second is None:
            assert shares == {}
            continue
        rates = {
            rank: min(own.bits_per_second, requested[rank].bits_per_second or own.bits_per_second) for rank in shares
        }
        seconds = [bytes_ * 8 / rates[rank] for rank, bytes_ in shares.items()]
        assert max(seconds) <= 1.1 * min(seconds)
        # No shorter than its share of the link's time, and more than bursts, which pass at any rate.
        least = min(own.bits_per_second, sum(rates.values())) / 8 * flows.STAR_SECONDS
        assert sum(shares.values()) >= 0.9 * max(least, 3 * shaping.LEAST_BURST_BYTES)


class Pair:
    """A communicator of two ranks, of which this one has measured as much as the other."""

    rank, world_size, bytes_in_order = 0, 2, None

    def all_gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        return [value, value]


@pytest.mark.parametrize("requested", [RequestedLink(4e6), RequestedLink()])
def test_a_repeated_measurement_moves_more(monkeypatch: pytest.MonkeyPatch, requested: RequestedLink) -> None:
    moved: list[int] = []

    def move(_: object, to: int, given: Pieces, source: int, wanted: Pieces, at_once: bool) -> float:
        moved.append(wanted.number * wanted.size)
        return 50e6

    monkeypatch.setattr(flows, "_pass", move)
    last = []
    for times in (4, 8):
        flows.flow_rates(cast("Communicator", Pair()), [1], [requested] * 2, times)
        last.append(moved[-1])
    assert last[1] == pytest.approx(2 * last[0], rel=0.1)


def test_figures_that_miss_the_request_are_measured_again_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    results: list[list[str]] = []

    def measure(*arguments: object) -> list[str]:
        asked.append(cast("int", arguments[-1]))
        return results.pop(0)

    monkeypatch.setattr(measurement, "_measure", measure)
    monkeypatch.setattr(measurement, "deviations", lambda links: links)
    settings = LinkSettings(link_rate="4mbit")
    for missed, measured in ((0, 1), (1, 2), (9, len(TIMES))):
        asked.clear()
        results[:] = [["a link"]] * missed + [[]]
        measurement.measure_links(settings, cast("Cluster", None), cast("Communicator", Pair()))
        assert len(asked) == measured
        assert asked == sorted(set(asked))
