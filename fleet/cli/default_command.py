"""A group that is also a command: `fleet tune demo` beside `fleet tune report demo`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

DEFAULT = "default"


class DefaultCommand(TyperGroup):
    """Runs the command named `default` when the first word names no other command.

    To the reader that command is the group itself: help and usage do not name it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click is vendored
        """Put the default command's name in front unless another command is named."""
        first = next((word for word in args if not word.startswith("-")), None)
        if first not in self._others():
            asks_help = any(word in ctx.help_option_names for word in _options(args))
            args = [ctx.help_option_names[0]] if asks_help else [DEFAULT, *args]
        return list(super().parse_args(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Return name, command and words; the default command stands in the group's place."""
        name, command, rest = super().resolve_command(ctx, args)
        if name == DEFAULT and command is not None:
            command.context_class = _in_place_of(ctx, command.context_class)
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the default command's help, then what other commands there are."""
        default: Any = self.commands[DEFAULT]
        default.format_help(
            type(ctx)(default, info_name=ctx.info_name, parent=ctx.parent), formatter
        )
        others = self._others()
        if others:
            with formatter.section("Commands"):
                formatter.write_dl(
                    [(name, each.get_short_help_str(60)) for name, each in others.items()]
                )

    def _others(self) -> dict[str, Any]:
        return {name: each for name, each in self.commands.items() if name != DEFAULT}


def _options(args: list[str]) -> list[str]:
    """Return the words before a `--`."""
    return args[: args.index("--")] if "--" in args else args


def _in_place_of(group: Any, context_class: Any) -> Any:  # noqa: ANN401 - click is vendored
    """Return a context class whose command is known by the group's own name."""

    class InPlace(context_class):  # type: ignore[misc] # the class is known at run time only
        """A context that calls its command what the group is called."""

        @property
        def command_path(self) -> str:
            """The words that lead here, without `default`."""
            return str(group.command_path)

    return InPlace
