"""A command line written anew from what was understood of it: the same command, elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import typer
from typer.core import TyperArgument, TyperOption


def words(context: typer.Context, changes: Mapping[str, object], *, without: Collection[str]) -> list[str]:
    """The command and its arguments, with every option that was given.

    Args:
        context: the command's, with its values.
        changes: parameter name to another value.
        without: parameters that do not go along.
    """
    values = {**context.params, **changes}
    options: list[str] = []
    rest: list[str] = []
    for parameter in context.command.params:
        value = values.get(parameter.name or "")
        if parameter.name in without or value is None or value == parameter.default:
            continue
        if isinstance(parameter, TyperArgument):
            rest += map(str, value)
        elif isinstance(parameter, TyperOption):
            options += _option(parameter, value)
    return [str(context.info_name), *options, *(["--", *rest] if rest else [])]


def _option(option: TyperOption, value: object) -> list[str]:
    if isinstance(value, bool):
        return [option.opts[0] if value else option.secondary_opts[0]]
    several = value if isinstance(value, list | tuple) else [value]
    # Joined by "=": a value may begin with a dash.
    return [f"{option.opts[0]}={one}" for one in several]
