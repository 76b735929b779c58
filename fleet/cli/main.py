"""The `fleet` program: finds the module of a verb and loads that one only."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fleet import __version__
from fleet.cli.readable_errors import readable_errors
from fleet.cli.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        command = typer.main.get_command(verb_app)
        return getattr(command, "commands", {}).get(cmd_name, command)

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
    version: Annotated[  # noqa: ARG001 - acts by its callback
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """From a profile to the fastest llama-server that your hardware can run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code of the contract."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with readable_errors(as_json="--json" in words, words=words):
        app(args=words, prog_name="fleet")
