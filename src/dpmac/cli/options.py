"""How options are read and explained: rules for tyro."""

import dataclasses
import shutil
import textwrap
import types
import typing
from typing import Any, Literal, SupportsIndex

from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from dpmac.plugins import whole_number


def registry() -> ConstructorRegistry:
    """Our rules, which come before tyro's own."""
    rules = ConstructorRegistry()
    rules.primitive_rule(number)
    asked: list[StructTypeInfo] = []

    @rules.struct_rule
    def explained(info: StructTypeInfo) -> StructConstructorSpec | None:
        if asked:  # by the call below, which is about what tyro's own rules say
            return None
        asked.append(info)
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            asked.clear()
        if not isinstance(found, StructConstructorSpec):
            return None
        return dataclasses.replace(found, fields=tuple(map(with_help, found.fields)))

    return rules


def with_help(field: StructFieldSpec) -> StructFieldSpec:
    """The same option, explained without the line breaks of our source, and for what its flag does."""
    said = field.helptext() if callable(field.helptext) else field.helptext
    if not said:
        return field
    said = "\n\n".join(paragraphs(said))
    if field.default is True:  # its flag is --no-NAME
        said = f"Switches this off: {said[0].lower()}{said[1:]}"
    return dataclasses.replace(field, helptext=said)


def paragraphs(text: str) -> list[str]:
    """Each paragraph of a text in one line."""
    return [" ".join(each.split()) for each in text.split("\n\n")]


class Lines(str):
    """Text whose line breaks tyro leaves as they are; it joins the lines that it splits other texts into."""

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [self] if sep == "\n" else super().split(sep, maxsplit)


def wrapped(text: str) -> str:
    """A text in lines that fit the terminal."""
    width = shutil.get_terminal_size().columns
    return Lines("\n\n".join(textwrap.fill(each, width, break_on_hyphens=False) for each in paragraphs(text)))


KINDS = {int: (whole_number, "a whole number"), float: (float, "a number")}


def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Options that are numbers, or one of a few words: whole numbers may be written as 1e6, and what is wrong is said
    in plain words."""
    union = typing.get_origin(info.type) in (typing.Union, types.UnionType)
    parts = typing.get_args(info.type) if union else (info.type,)
    kind = next((each for each in KINDS if each in parts), None)
    if kind is None:
        return None
    words: dict[str, Any] = {"None": None} if type(None) in parts else {}
    words |= {word: word for part in parts if typing.get_origin(part) is Literal for word in typing.get_args(part)}
    (read, name), names = KINDS[kind], [word for word in words if word != "None"]

    def instance(given: list[str]) -> Any:
        if given[0] in words:
            return words[given[0]]
        try:
            return read(given[0])
        except (ValueError, OverflowError):
            raise ValueError(f"{given[0]!r} is not {' or '.join([name, *names])}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join([kind.__name__.upper(), *(f"{{{word}}}" for word in names)]),
        instance_from_str=instance,
        is_instance=lambda value: isinstance(value, (int, kind)) or value in words.values(),
        str_from_instance=lambda value: [str(value)],
    )
