"""What a field of a grid file can be, in words, from its type."""

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def kind(annotation: Any) -> str:
    """A type in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(kind(each) for each in inside if each is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in inside)
    if origin is list:
        return f"list of {kind(inside[0])}s"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    return {str: "text", int: "whole number", float: "number", bool: "true, false"}.get(annotation, "text")


def allowed(field: FieldInfo) -> str:
    """The type of a field and its bounds, in words."""
    words = kind(field.annotation)
    bounds = [getattr(rule, end) for end in ("ge", "le") for rule in field.metadata if hasattr(rule, end)]
    return words if "," in words else ", ".join([f"a {words}", *([" to ".join(map(str, bounds))] if bounds else [])])
