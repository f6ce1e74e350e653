"""What a [[show]] of older grid files is called today, for the refusal that shows the new lines."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Options = Mapping[str, Any]
RANK_MEASURES = ["cpus", "node_user_percent", "node_system_percent", "interface_bytes_sent_per_second"]
OF_TRAFFIC = ["sent_in_gradients", "bytes_sent_in_all", "busiest_rank", "busiest_bytes_sent", "busiest_in_gradients"]
OF_SCALING = ["epoch_seconds", "bytes_sent_per_second", "interface_bytes_sent_per_second"]
OF_EPOCHS = ["epoch_computing_seconds", "epoch_communication_seconds", "epoch_hidden_seconds", "training_accuracy"]
OF_BANDWIDTH = [
    "bandwidth.algorithm_bytes_per_second",
    "bandwidth.bus_bytes_per_second",
    "bus_of_link",
    "ring_seconds",
    "epoch_bytes_per_second",
]


def view(kind: str, measure: str | list[str], **options: Any) -> dict[str, Any]:
    return {"kind": kind, "measure": measure, **{name: each for name, each in options.items() if each is not None}}


def _told(options: Options, **measures: str) -> list[dict[str, Any]] | None:
    """The published figures of these options, each of a measure."""
    told = [
        {"measure": measure} | ({"scale": 1e6} if name.endswith("_mb") else {}) | dict(options[name])
        for name, measure in measures.items()
        if options.get(name)
    ]
    return told or None


def _ratio(options: Options, name: str) -> dict[str, Any] | None:
    return {"ratio": True} | dict(options[name]) if options.get(name) else None


def _times(o: Options) -> Iterator[dict[str, Any]]:
    means = [f"mean_seconds_to({count})" for count in o.get("first_steps", [])]
    named = {name: o.get(name) for name in ("baseline", "published")}
    yield view("bar", ["seconds", "first_step_seconds", *means], **named)


def _phases(o: Options) -> Iterator[dict[str, Any]]:
    yield view("bar", "phases")
    yield view("curve", "phases", every=o.get("block"))
    if o.get("baseline"):
        less = {"times_less": True, "published": _ratio(o, "published")}
        yield view("bar", "forward_seconds.mean", baseline=o["baseline"], **less)


def _lines(o: Options) -> Iterator[dict[str, Any]]:
    figure = f"seconds_to_loss({o.get('loss')})" if o.get("figure") == "seconds_to_loss" else o.get("figure", "seconds")
    yield view("line", figure, by=o.get("x"), series=o.get("series"), baseline=o.get("baseline"), watch=o.get("watch"))


def _usage(o: Options) -> Iterator[dict[str, Any]]:
    told = _told(
        o,
        published_cpu_user="node_user_percent",
        published_cpu_system="node_system_percent",
        published_network_mb="interface_bytes_sent_per_second",
    )
    yield view("table", RANK_MEASURES, by="rank", published=told)
    yield view("curve", ["cpu_user_percent", "cpu_system_percent"], by="time")
    yield view("curve", "network_sent_bytes", by="time")
    yield view("table", OF_TRAFFIC)
    yield view("bar", "bytes_sent_per_second", baseline=o.get("baseline"), published=_ratio(o, "published_ratio"))


def _scaling(o: Options) -> Iterator[dict[str, Any]]:
    strong = o.get("kind") == "strong"
    pair = ["seconds", "images_per_second"]
    measure = [*(pair if strong else pair[::-1]), *OF_SCALING]
    told = _told(o, published_seconds="epoch_seconds", published_network_mb="interface_bytes_sent_per_second")
    where = {"BATCH_SIZE_PER_RANK": "" if strong else "*"}
    yield view("line", measure, by="ranks", against="one rank", where=where, published=told)


def _epochs(o: Options) -> Iterator[dict[str, Any]]:
    told = _told(o, published_seconds="epoch_seconds", published_communication="epoch_communication_seconds") or []
    speedup = _ratio(o, "published_speedup")
    published = [*told, *([speedup] if speedup else [])] or None
    yield view("line", ["epoch_seconds", *OF_EPOCHS], by="ranks", against="one rank", published=published)
    yield view("line", "epoch_seconds", by="batch")
    yield view("bar", ["epoch_seconds", "epoch_computing_seconds", "epoch_communication_seconds"], stacked=True)
    yield view("table", OF_BANDWIDTH, published=_told(o, published_bandwidth_mb="epoch_bytes_per_second"))


def _scores(o: Options) -> Iterator[dict[str, Any]]:
    told = _told(o, published_loss="test_loss", published_accuracy="accuracy")
    yield view("table", ["test_loss", "accuracy"], by="rank", published=told)


def _curves(o: Options) -> Iterator[dict[str, Any]]:
    yield view("curve", ["training_loss", "training_accuracy"], by="epoch")
    told = _told(
        o, published_loss="training_loss", published_accuracy="training_accuracy", published_seconds="training_seconds"
    )
    yield view("table", ["training_loss", "training_accuracy", "training_seconds"], by="rank", published=told)
    if pair := o.get("together"):
        yield view("curve", "loss", reference=pair[0], rounding=o.get("tolerance", 1e-3))


def _accuracy(o: Options) -> Iterator[dict[str, Any]]:
    pair = ["accuracy", "training_accuracy"][:: -1 if o.get("judged") == "training" else 1]
    told = _told(o, published_test="accuracy", published_training="training_accuracy")
    yield view("bar", pair, baseline=o.get("baseline"), published=told)
    yield view("curve", pair[0], by="epoch")


def _distance(o: Options) -> Iterator[dict[str, Any]]:
    yield view("curve", "loss", reference=o.get("reference"), rounding=o.get("rounding"))


def _exchanges(o: Options) -> Iterator[dict[str, Any]]:
    measure = ["bandwidth.sync_seconds", "seconds", "busiest_in_gradients"]
    bound = "bandwidth.sync_seconds_at_least"
    watch, against = o.get("pair") or (None, None)
    yield view("line", measure, by="ranks", series="mode", against=against, watch=watch, bound=bound)


def _savings(o: Options) -> Iterator[dict[str, Any]]:
    told = _ratio(o, "published")
    yield view(
        "bar", ["bytes_sent_in_all", "gradient_bytes"], baseline=o.get("baseline"), times_less=True, published=told
    )


def _periods(o: Options) -> Iterator[dict[str, Any]]:
    parts = ["long_run_seconds", "computing_seconds", "averaging_share_seconds"]
    yield view("bar", parts, stacked=True)
    measure = ["long_run_seconds", "averaging_seconds", "computing_share"]
    yield view("line", measure, by="SYNC_EVERY", baseline=o.get("baseline"))


NEW: dict[str, Callable[[Options], Iterator[dict[str, Any]]]] = {
    "times": _times,
    "phases": _phases,
    "lines": _lines,
    "usage": _usage,
    "scaling": _scaling,
    "epochs": _epochs,
    "scores": _scores,
    "losses": lambda o: iter([view("curve", "loss", every=o.get("every"), published=o.get("published"))]),
    "curves": _curves,
    "accuracy": _accuracy,
    "distance": _distance,
    "exchanges": _exchanges,
    "break_even": lambda o: iter([view("line", "seconds", by="rate", series="label", against=o.get("against"))]),
    "savings": _savings,
    "periods": _periods,
}


def new_lines(show: Options) -> list[str]:
    """The [[view]] tables that show the same, in TOML; none where there was no such view."""
    chosen = show.get("among") or (show.get("together") or [])[1:]
    lines = [f"# Choose by settings, with where, what was chosen by name: {_toml(chosen)}"] if chosen else []
    common = {name: show[name] for name in ("where", "note") if name in show}
    for made in NEW[show["view"]](show) if show.get("view") in NEW else ():
        lines += [
            "[[view]]",
            *(f"{name} = {_toml(each)}" for name, each in (made | _title(show) | common | _where(made, show)).items()),
        ]
    return lines


def _title(show: Options) -> dict[str, Any]:
    return {"title": show.get("title", "")}


def _where(made: Options, show: Options) -> dict[str, Any]:
    both = {**made.get("where", {}), **(show.get("where") or {})}
    return {"where": both} if both else {}


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = (
            (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name), each) for name, each in value.items()
        )
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in keys)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
