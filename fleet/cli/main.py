"""The `fleet` program: finds the module of a verb and loads that one only."""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fleet import __version__
from fleet.cli.readable_errors import open_closed_streams, readable_errors
from fleet.cli.verbs import VERBS
from fleet.effects.termination import term_interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMPLETION = ("install_completion", "show_completion")


class LazyVerbs(TyperGroup):
    """A group whose commands are loaded when they are called, not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - click's type is vendored
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - as above
        """Load the verb's module and return its command, or None for an unknown verb."""
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        verb_app = importlib.import_module(f"fleet.cli.{verb.module}").app
        command: Any = typer.main.get_command(verb_app)
        found = getattr(command, "commands", {}).get(cmd_name, command)
        for each in (found, *getattr(found, "commands", {}).values()):
            each.rich_markup_mode = None  # one look for all help, that of `fleet --help`
        # these belong to `fleet` itself
        found.params = [param for param in found.params if param.name not in _COMPLETION]
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Return the verb's name, command and words; an unknown verb names the near one."""
        near = get_close_matches(args[0], VERBS, n=1) if args else []
        if args and args[0] not in VERBS and near:
            ctx.fail(f"No such command '{args[0]}', did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:  # noqa: ANN401 - as above
        """Complete a verb from the table alone, without loading every module."""
        if incomplete.startswith("-"):
            return list(super().shell_complete(ctx, incomplete))
        item = type(super().shell_complete(ctx, "--version")[0])
        verbs = (name for name in VERBS if name.startswith(incomplete))
        return [item(name, help=VERBS[name].help) for name in verbs]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write the help's list of verbs from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


app = typer.Typer(
    cls=LazyVerbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fleet {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def fleet(
    verbose: Annotated[
        int,
        typer.Option(
            "-v", "--verbose", count=True, show_default=False, help="Say what is done; -vv more"
        ),
    ] = 0,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """From a profile to the fastest llama-server that your hardware can run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code of the contract."""
    open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    words, level = take_verbosity(given)
    if level:
        importlib.import_module("fleet.cli.verbosity").turn_on(level)
    with readable_errors(as_json=asks_json(words), words=words), term_interrupts():
        code = app(args=words, prog_name="fleet", standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else 0)


def take_verbosity(words: Sequence[str]) -> tuple[list[str], int]:
    """Return the words without `-v`, `-vv` and `--verbose`, and how many there were.

    They may stand before or after the verb; behind `--` a word is no option.
    """
    end = words.index("--") if "--" in words else len(words)
    options = {"-v": 1, "--verbose": 1, "-vv": 2, "-vvv": 3}
    level = sum(options.get(word, 0) for word in words[:end])
    return [word for word in words[:end] if word not in options] + list(words[end:]), level


def asks_json(words: Sequence[str]) -> bool:
    """Whether the answer is to be JSON, as far as words tell that may not be parsed yet."""
    end = words.index("--") if "--" in words else len(words)
    return "--json" in words[:end]
