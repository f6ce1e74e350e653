"""What a [[show]] of older grid files is called today, for the refusal that shows the new lines."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Options = Mapping[str, Any]
View = dict[str, Any]
CPU_AND_NETWORK = {
    "published_cpu_user": "node_user_percent",
    "published_cpu_system": "node_system_percent",
    "published_network_mb": "interface_bytes_sent_per_second",
}
OF_TRAFFIC = ["sent_in_gradients", "bytes_sent_in_all", "busiest_rank", "busiest_bytes_sent", "busiest_in_gradients"]
OF_EPOCH = ["epoch_computing_seconds", "epoch_communication_seconds"]
OF_BANDWIDTH = [
    *("bandwidth.algorithm_bytes_per_second", "bandwidth.bus_bytes_per_second", "bus_of_link"),
    *("ring_seconds", "epoch_bytes_per_second"),
]
LEARNED = ["training_loss", "training_accuracy"]


def _views(o: Options) -> Iterator[View]:
    """Today's views with the same figures; options that were not given are None."""

    def view(kind: str, measure: str | list[str], **options: Any) -> View:
        return {"kind": kind, "measure": measure} | options

    base, published = o.get("baseline"), o.get("published")
    ratio = _published(o, published="ratio")
    match o.get("view"):
        case "times":
            means = [f"mean_seconds_to({count})" for count in o.get("first_steps", [])]
            yield view("bar", ["seconds", "first_step_seconds", *means], baseline=base, published=published)
        case "phases":
            yield view("bar", "phases")
            yield view("curve", "phases", every=o.get("block"))
            if base:
                yield view("bar", "forward_seconds.mean", baseline=base, times_less=True, published=ratio)
        case "lines":
            measure = o.get("figure", "seconds")
            measure += f"({o.get('loss')})" if measure == "seconds_to_loss" else ""
            yield view("line", measure, by=o.get("x"), series=o.get("series"), baseline=base, watch=o.get("watch"))
        case "usage":
            told = _published(o, **CPU_AND_NETWORK)
            yield view("table", ["cpus", *CPU_AND_NETWORK.values()], by="rank", published=told)
            yield view("curve", ["cpu_user_percent", "cpu_system_percent"], by="time")
            yield view("curve", "network_sent_bytes", by="time")
            yield view("table", OF_TRAFFIC)
            told = _published(o, published_ratio="ratio")
            yield view("bar", "bytes_sent_per_second", baseline=base, published=told)
        case "scaling":
            strong, network = o.get("kind") == "strong", CPU_AND_NETWORK["published_network_mb"]
            pair = ["seconds", "images_per_second"][:: 1 if strong else -1]
            told = _published(o, published_seconds="epoch_seconds", published_network_mb=network)
            where = {"BATCH_SIZE_PER_RANK": "" if strong else "*"}
            measures = [*pair, "epoch_seconds", "bytes_sent_per_second", network]
            yield view("line", measures, by="ranks", against="one rank", where=where, published=told)
        case "epochs":
            names = ("published_seconds", "published_communication", "published_speedup")
            told = _published(o, **dict(zip(names, ("epoch_seconds", OF_EPOCH[1], "ratio"), strict=True)))
            measures = ["epoch_seconds", *OF_EPOCH, "epoch_hidden_seconds", "training_accuracy"]
            yield view("line", measures, by="ranks", against="one rank", published=told)
            yield view("line", "epoch_seconds", by="batch")
            yield view("bar", ["epoch_seconds", *OF_EPOCH], stacked=True)
            yield view("table", OF_BANDWIDTH, published=_published(o, published_bandwidth_mb="epoch_bytes_per_second"))
        case "scores":
            told = _published(o, published_loss="test_loss", published_accuracy="accuracy")
            yield view("table", ["test_loss", "accuracy"], by="rank", published=told)
        case "losses":
            yield view("curve", "loss", every=o.get("every"), published=published)
        case "curves":
            yield view("curve", LEARNED, by="epoch")
            measures = [*LEARNED, "training_seconds"]
            names = ("published_loss", "published_accuracy", "published_seconds")
            told = _published(o, **dict(zip(names, measures, strict=True)))
            yield view("table", measures, by="rank", published=told)
            if o.get("together"):
                yield view("curve", "loss", reference=o["together"][0], rounding=o.get("tolerance", 1e-3))
        case "accuracy":
            pair = ["accuracy", "training_accuracy"][:: -1 if o.get("judged") == "training" else 1]
            told = _published(o, published_test="accuracy", published_training="training_accuracy")
            yield view("bar", pair, baseline=base, published=told)
            yield view("curve", pair[0], by="epoch")
        case "distance":
            yield view("curve", "loss", reference=o.get("reference"), rounding=o.get("rounding"))
        case "exchanges":
            sync, (watch, against) = "bandwidth.sync_seconds", o.get("pair") or (None, None)
            measures, bound = [sync, "seconds", "busiest_in_gradients"], f"{sync}_at_least"
            yield view("line", measures, by="ranks", series="mode", against=against, watch=watch, bound=bound)
        case "break_even":
            yield view("line", "seconds", by="rate", series="label", against=o.get("against"))
        case "savings":
            yield view("bar", ["bytes_sent_in_all", "gradient_bytes"], baseline=base, times_less=True, published=ratio)
        case "periods":
            parts = ["long_run_seconds", "computing_seconds", "averaging_share_seconds"]
            yield view("bar", parts, stacked=True)
            measures = ["long_run_seconds", "averaging_seconds", "computing_share"]
            yield view("line", measures, by="SYNC_EVERY", baseline=base)


def _published(options: Options, **measures: str) -> list[View] | None:
    """The published figures of these options, each of a measure or of a ratio."""
    found = []
    for name, measure in measures.items():
        if options.get(name):
            of: View = {"ratio": True} if measure == "ratio" else {"measure": measure}
            found.append(of | ({"scale": 1e6} if name.endswith("_mb") else {}) | options[name])
    return found or None


def new_lines(show: Options) -> list[str]:
    """The [[view]] tables that show the same, in TOML; none where there was no such view."""
    chosen = show.get("among") or (show.get("together") or [])[1:]
    lines = [f"# Choose by settings, with where, what was chosen by name: {_toml(chosen)}"] if chosen else []
    for made in _views(show):
        common = {"title": show.get("title", ""), "note": show.get("note"), "where": show.get("where")}
        if made.get("where"):
            common["where"] = made["where"] | (common["where"] or {})
        given = {name: value for name, value in (made | common).items() if value is not None}
        lines += ["[[view]]", *(f"{name} = {_toml(value)}" for name, value in given.items())]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = (
            (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name), each) for name, each in value.items()
        )
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in keys)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
