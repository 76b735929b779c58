"""A group that is also a command: `fleet tune demo` beside `fleet tune report demo`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

DEFAULT = "default"


class DefaultCommand(TyperGroup):
    """Runs the command named `default` when the first word names no other command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click is vendored
        """Put the default command's name in front unless another command is named."""
        asks_help = bool(args) and args[0] in ctx.help_option_names
        first = next((word for word in args if not word.startswith("-")), None)
        if args and not asks_help and first not in self.commands:
            args = [DEFAULT, *args]
        return list(super().parse_args(ctx, args))
