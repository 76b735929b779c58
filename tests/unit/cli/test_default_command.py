from __future__ import annotations

import pytest
import typer

from fleet.cli.default_command import DefaultCommand

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(cls=DefaultCommand, context_settings=HELP, rich_markup_mode=None)


@app.command("default")
def default(name: str, metric: str = "tg") -> None:
    """Search for NAME."""
    typer.echo(f"default {name} {metric}")


@app.command()
def external(space: str = "none") -> None:
    """Search for anything."""
    typer.echo(f"external {space}")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        app(args=list(words), prog_name="tune")
    out, err = capsys.readouterr()
    return int(str(ended.value.code or 0)), out + err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("demo",), "default demo tg"),
        (("demo", "--metric", "pp"), "default demo pp"),
        (("--metric", "pp", "demo"), "default demo pp"),
        (("external",), "external none"),
        (("external", "--space", "x"), "external x"),
    ],
)
def test_the_first_word_decides(
    words: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *words) == (0, f"{answer}\n")


@pytest.mark.parametrize("words", [("--help",), ("demo", "-h"), ("-h",)])
def test_help_is_that_of_the_default_with_the_other_commands(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *words)

    assert code == 0
    assert "Usage: tune [OPTIONS]" in text
    assert "--metric" in text
    assert "external" in text
    assert "tune default" not in text


@pytest.mark.parametrize("words", [(), ("demo", "--nonsense")])
def test_a_usage_error_speaks_of_the_group(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *words)

    assert code == 2
    assert "tune default" not in text
