"""Compile every shipped deployment for every known build and check each word against its list.

`judge_flags.py FOLDER`: FOLDER holds `flags-by-build.json`, build -> options, each with
`flags`, `negations`, `env` and perhaps `removed`. A refusal (exit 3) that says why passes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fleet.cli.compile import BuildChoice, as_json_object, compile_for
from fleet.cli.load import load_deployment, load_library
from fleet.errors import CannotExpress, UserError


def main(folder: str) -> int:
    """Print a table of builds; return the number of words that a build does not know."""
    by_build = json.loads((Path(folder) / "flags-by-build.json").read_text())
    names = sorted(set(deployments()))
    wrong = refused = compiled = 0
    for build, options in by_build.items():
        flags, variables = known(options)
        for name in names:
            for sets in ((), ("engine=llama.cpp",), ("engine=embedded",)):
                try:
                    launches = compile_for(
                        load_deployment(name, sets=sets), BuildChoice(build=build)
                    )
                except UserError as error:
                    refused += 1
                    if "-v" in sys.argv:
                        kind = "cannot" if isinstance(error, CannotExpress) else "user"
                        print(f"{build} {name} {sets}: {kind}: {error} | {error.fix}")
                    continue
                for launch in launches:
                    compiled += 1
                    shown = as_json_object(launch)
                    if launch.role == "server" and launch.engine in {"llama.cpp", "embedded"}:
                        wrong += report(build, name, unknown(shown, flags, variables))
    print(f"{compiled} launches, {refused} refusals, {wrong} with unknown words")
    return wrong


def deployments() -> list[str]:
    """Return the names of all deployments at hand."""
    return [entry.name for entry in load_library().entries("deployment")]


def known(options: list[dict]) -> tuple[set[str], set[str]]:
    """Return the flags and variables that are not removed."""
    usable = [option for option in options if not option.get("removed")]
    flags = {flag for option in usable for flag in (*option["flags"], *option["negations"])}
    return flags, {option["env"] for option in usable if option["env"]}


def unknown(shown: dict, flags: set[str], variables: set[str]) -> list[str]:
    """Return the words of a launch that the build does not list."""
    words = [word for word in shown["argv"] if word.startswith("-") and not word[1:2].isdigit()]
    wrong = [word for word in words if word not in flags]
    return wrong + [name for name in shown["env"] if name not in variables]


def report(build: str, name: str, words: list[str]) -> int:
    """Print what is wrong, if anything."""
    if words:
        print(f"WRONG {build} {name}: {words}")
    return bool(words)


if __name__ == "__main__":
    raise SystemExit(1 if main(sys.argv[1]) else 0)
