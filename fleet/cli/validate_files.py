"""Check profile files against the tables and against all profiles they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.cli.load import load_library
from fleet.effects.profile_folders import read_profile_file
from fleet.errors import UserError
from fleet.profiles.kinds import ExampleFile
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.profiles.parse_profile import check_profile
from fleet.profiles.problems import Problem
from fleet.profiles.references import broken_references

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedFile:
    """A profile file and what is wrong with it, in the order of the lines."""

    file: str
    problems: tuple[Problem, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the object of `validate --json`."""
        errors = [
            {"line": each.line, "path": each.path, "message": each.message, "near": each.near}
            for each in self.problems
        ]
        return {"file": self.file, "valid": not self.problems, "errors": errors}


def validate_files(files: Sequence[str], extra_folders: Sequence[str]) -> tuple[CheckedFile, ...]:
    """Return the files with their problems; no `files` means all of all profile folders.

    What they name is looked for in the files themselves, then in all profile folders.
    """
    at_hand = load_library(extra_folders)
    if not files:
        return tuple(_check(source, at_hand) for source in at_hand.sources)
    read = [_read(file) for file in files]
    sources = [source for source in read if isinstance(source, ProfileSource)]
    named = {Path(source.file).resolve() for source in sources}
    others = [each for each in at_hand.sources if Path(each.file).resolve() not in named]
    library = ProfileLibrary([*sources, *others])
    return tuple(
        source if isinstance(source, CheckedFile) else _check(source, library) for source in read
    )


def _read(file: str) -> ProfileSource | CheckedFile:
    try:
        return ProfileSource(file=file, layer="user", content=read_profile_file(file))
    except UserError as error:
        # line 0: the file as a whole
        problem = Problem(line=0, path="", message=error.message, fix=error.fix)
        return CheckedFile(file=file, problems=(problem,))


def _check(source: ProfileSource, library: ProfileLibrary) -> CheckedFile:
    found = check_profile(source.content, file=source.file)
    if isinstance(found, tuple):
        return CheckedFile(file=source.file, problems=found)
    if isinstance(found, ExampleFile):
        return CheckedFile(file=source.file, problems=())
    problems = [*broken_references(found, library)]
    first = library.repeated.get(source.file)
    if first is not None:
        message = f"`{found.name}` is a {first.kind} of {first.file} too, which wins"
        problems.append(Problem(line=found.place.line, path="name", message=message))
    return CheckedFile(file=source.file, problems=tuple(problems))
