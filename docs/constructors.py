"""Show each class of the reference by the keywords that its constructor takes, and with the whole of its source."""

from collections.abc import Iterator
from typing import Any

from griffe import Class, Extension, Module, Parameter, Parameters


class Constructors(Extension):
    """Of a constructor under @accept_options(OPTIONS), the keywords are the fields of OPTIONS."""

    def on_package(self, *, pkg: Module, **others: Any) -> None:
        for found in list_classes(pkg):
            if (construct := found.members.get("__init__")) is None:
                continue
            construct.lineno, construct.endlineno = found.lineno, found.endlineno
            for decorator in construct.decorators:
                name, _, options = str(decorator.value).rstrip(")").partition("(")
                if name == "accept_options":
                    _, *keywords = pkg.modules_collection[found.resolve(options)].parameters
                    construct.parameters = Parameters(Parameter("self"), *keywords)


def list_classes(place: Module | Class) -> Iterator[Class]:
    """Yield the classes of a module or class, and of all below it; not those that it imports."""
    for member in place.members.values():
        if not member.is_alias and (member.is_module or member.is_class):
            if member.is_class:
                yield member
            yield from list_classes(member)
