"""Which module of `cli/` answers which verb, so that only that one is loaded.

Each module holds a typer app named `app`; a module of one verb has one command, a module
of several has one command or sub-app for each, found by the verb's name.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb of the command line: its module under `fleet.cli` and its line in the help."""

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "list": Verb("profiles", "List profiles and where each comes from"),
    "show": Verb("show", "Show a deployment's resolved settings, and why"),
    "validate": Verb("profiles", "Check profile files, all errors at once"),
    "schema": Verb("profiles", "Print the JSON schema of a profile kind"),
    "init": Verb("profiles", "Write a deployment file to go on from"),
    "compile": Verb("compile", "Print the launch configurations of a deployment"),
    "fit": Verb("fit", "Say what a model takes on each device, and whether it fits"),
    "render": Verb("render", "Write Containerfiles, units, inventories, runbooks"),
    "build": Verb("build", "Build the image of a deployment"),
    "plan": Verb("up", "Show what `up` would change"),
    "up": Verb("up", "Deploy, wait until ready, prime, verify"),
    "down": Verb("down", "Stop a deployment"),
    "restart": Verb("down", "Stop and start a deployment"),
    "rollback": Verb("down", "Start an earlier generation again"),
    "history": Verb("status", "List the generations of a deployment"),
    "status": Verb("status", "Say what runs where, and whether it is as wanted"),
    "logs": Verb("status", "Print or follow a deployment's log"),
    "check": Verb("check", "Compare a running deployment with its plan"),
    "doctor": Verb("doctor", "Say what a host is missing, and how to mend it"),
    "hosts": Verb("hosts", "Probe hosts"),
    "key": Verb("key", "Print or rotate a deployment's API key"),
    "models": Verb("models", "List, fetch and remove models"),
    "prune": Verb("models", "Remove old generations, images and, if asked, models of fleet's"),
    "tune": Verb("tune", "Measure and keep the best settings"),
    "bench": Verb("bench", "Measure what a change really brings"),
    "diagnose": Verb("diagnose", "Read a log and say what holds the server back"),
    "prompts": Verb("prompts", "Find what breaks a shared prefix; prime it"),
    "report": Verb("report", "Make tables, plots and a page of a results folder"),
}
