"""What a trace must be: the Trace Event format as its readers take it, and nothing that they would draw wrongly."""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

Event = dict[str, Any]

NUMBER = {"type": "number", "minimum": 0}
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
EVERY = {"name": TEXT, "pid": COUNT, "tid": COUNT, "ts": NUMBER}


def shape(kind: str, **fields: Any) -> dict[str, Any]:
    """A closed object, of which every field is required."""
    known = {"ph": {"const": kind}, **EVERY, **fields}
    return {"type": "object", "properties": known, "required": list(known), "additionalProperties": False}


def closed(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


SPAN_ARGS = {
    "step": closed(step=COUNT, epoch=COUNT, samples=COUNT, bytes_sent=COUNT),
    "message": closed(step=COUNT, bytes=COUNT),
    "evaluation": closed(epoch=COUNT, loss=NUMBER, accuracy=NUMBER),
    "saving": closed(step=COUNT, bytes=COUNT),
}
EVENT = {
    "oneOf": [
        *(shape("X", dur=NUMBER, cat={"const": kind}, args=args) for kind, args in SPAN_ARGS.items()),
        shape("X", dur=NUMBER, cat={"const": "phase"}),
        shape("i", s={"const": "p"}, args=closed(ahead_seconds={"type": "number"}, uncertainty_seconds=NUMBER)),
        shape("C", args={"type": "object", "additionalProperties": NUMBER, "minProperties": 1}),
        shape("M", args={"type": "object", "minProperties": 1, "maxProperties": 1}),
    ]
}
DOCUMENT = closed(
    displayTimeUnit={"const": "ms"},
    otherData=closed(
        run=TEXT,
        started_at=TEXT,
        lockstep=TEXT,
        sync_mode=TEXT,
        world_size={"type": "integer", "minimum": 1},
        clock=TEXT,
        shift_seconds=NUMBER,
        clock_uncertainty_seconds={"type": ["number", "null"], "minimum": 0},
        trace_steps={"type": "integer", "minimum": 1},
        steps_recorded=COUNT,
        steps_shown={"type": "array", "items": {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}},
    ),
    traceEvents={"type": "array", "items": EVENT},
)


def read(run_folder: Path) -> dict[str, Any]:
    """A run's trace, which must be as it should."""
    trace: dict[str, Any] = json.loads((run_folder / "trace.json").read_text())
    assert list(chain(_misshapen(trace), _misplaced(trace))) == []
    return trace


def of_kind(trace: dict[str, Any], kind: str, category: str | None = None) -> list[Event]:
    return [each for each in trace["traceEvents"] if each["ph"] == kind and each.get("cat") == category]


def inside(trace: dict[str, Any], whole: Event) -> list[Event]:
    """The phases of a step, in their order."""
    return [
        each
        for each in of_kind(trace, "X", "phase")
        if each["tid"] == whole["tid"] and whole["ts"] <= each["ts"] < whole["ts"] + whole["dur"]
    ]


def _misshapen(trace: dict[str, Any]) -> Iterator[str]:
    for error in Draft202012Validator(DOCUMENT).iter_errors(trace):
        yield f"{error.json_path}: {error.message}"


def _misplaced(trace: dict[str, Any]) -> Iterator[str]:
    """What overlaps, or has no name, or is one thread of two processes; without any tolerance."""
    threads: dict[int, list[Event]] = defaultdict(list)
    for event in [each for each in trace["traceEvents"] if each["ph"] == "X"]:
        threads[event["tid"]].append(event)
    named = {each["tid"] for each in of_kind(trace, "M") if each["name"] == "thread_name"}
    for thread, spans in threads.items():
        if thread not in named:
            yield f"thread {thread} has no name"
        if len({each["pid"] for each in spans}) > 1:
            yield f"thread {thread} is one of several processes"
        yield from _crossing(spans)
    for process in {each["pid"] for each in trace["traceEvents"]}:
        names = [each["name"] for each in of_kind(trace, "M") if each["pid"] == process]
        if [names.count(name) for name in ("process_name", "process_labels", "process_sort_index")] != [1, 1, 1]:
            yield f"process {process} has the names {names}"
        for counter in {each["name"] for each in of_kind(trace, "C")}:
            moments = [e["ts"] for e in of_kind(trace, "C") if (e["pid"], e["name"]) == (process, counter)]
            if any(after <= before for before, after in pairwise(moments)):
                yield f"{counter} of process {process} goes back in time"


def _crossing(spans: list[Event]) -> Iterator[str]:
    """Spans of one thread, in the order of the file, that neither lie within each other nor apart."""
    around: list[Event] = []
    for span in spans:
        while around and around[-1]["ts"] + around[-1]["dur"] <= span["ts"]:
            around.pop()
        outer = around[-1] if around else None
        if outer and not outer["ts"] <= span["ts"] <= span["ts"] + span["dur"] <= outer["ts"] + outer["dur"]:
            yield f"{span} crosses {outer}"
        if outer and (outer["cat"], span["cat"]) != ("step", "phase"):
            yield f"{span} lies within {outer}"
        if not outer and span["cat"] == "phase":
            yield f"{span} lies within no step"
        around.append(span)
