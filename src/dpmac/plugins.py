"""What users bring along, by the place that it is imported from, and options that come as text."""

import dataclasses
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from dpmac.config import BadInput, require


def load(
    kind: str, name: str, built_in: Mapping[str, str], fits: Callable[[Any], bool], wanted: str, also: str = ""
) -> Any:
    """What a built-in name or `package.module:Name` stands for, if it fits.

    Messages say that a kind of thing was asked for, what it must be (`wanted`), and how else it can be named (`also`).
    """
    require(isinstance(name, str), f"the name of a {kind} is text, not {name!r}")
    place = built_in.get(name, name)
    module, colon, attribute = place.partition(":")
    allowed = ", or ".join([*filter(None, [", ".join(built_in)]), f"your own as package.module:Name{also}"])
    require(bool(module and colon and attribute), f"unknown {kind} {name!r}; allowed are {allowed}")
    if "" not in sys.path:
        sys.path.append("")  # a user's own module lies in the working directory, where installed commands do not look
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError) as error:  # TypeError: a relative name
        raise BadInput(f"{kind} {name!r} cannot be loaded: {error}") from None
    require(fits(found), f"{kind} {name!r} is not {wanted}; allowed are {allowed}")
    return found


def subclass_of(base: type) -> Callable[[Any], bool]:
    """A test for classes of this kind that can be built."""
    return lambda found: (
        isinstance(found, type) and found is not base and issubclass(found, base) and not inspect.isabstract(found)
    )


def options(cls: type) -> dict[str, Any]:
    """The options of a dataclass and their types."""
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def build(kind: str, name: str, cls: type, values: Mapping[str, Any]) -> Any:
    """A dataclass from option values, which may be text; unknown options and wrong types are bad input."""
    kinds = options(cls)
    for option in values:
        require(option in kinds, f"{kind} {name} has no option {option!r}; allowed are {', '.join(kinds) or 'none'}")
    return cls(**{option: read(f"{name}: {option}", value, kinds[option]) for option, value in values.items()})


def settings(pairs: Iterable[str]) -> dict[str, str]:
    """Options from KEY=VALUE pairs.

    >>> settings(["agents=4", "convention=mpe2"])
    {'agents': '4', 'convention': 'mpe2'}
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        require(bool(key and equals and value), f"an option is written KEY=VALUE, not {pair!r}")
        require(key not in found, f"the option {key} is given twice")
        found[key] = value
    return found


def read(what: str, value: Any, kind: Any) -> Any:
    """A value of this type from one that may be text."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None if value is None else read(what, value, typing.get_args(kind)[0])
    if typing.get_origin(kind) is Literal:
        allowed = typing.get_args(kind)
        require(value in allowed, f"{what} must be one of {', '.join(map(str, allowed))}, not {value!r}")
        return value
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    try:
        if kind is float and not isinstance(value, bool):
            return float(value)
        if kind is int and isinstance(value, str):
            return whole_number(value)
        if kind is int and not isinstance(value, bool) and float(value) == int(value):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    if kind in NUMBERS:
        raise BadInput(f"{what} must be {NUMBERS[kind]}, not {value!r}")
    return value


def whole_number(text: str) -> int:
    """A whole number as people write it; anything else is a `ValueError`.

    >>> whole_number("12"), whole_number("1e6")
    (12, 1000000)
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
        require(number.is_integer(), f"{text!r} is not a whole number")
        return int(number)


NUMBERS = {bool: "true or false", int: "a whole number", float: "a number or inf"}
