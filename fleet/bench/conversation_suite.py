"""`fleet bench --suite conversation`: a folder made or gone on with, and its summary."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleet import __version__
from fleet.bench.import_conv import import_conv
from fleet.bench.run_conversations import Bench, condition_label, run_conversations
from fleet.bench.summarise import summarise
from fleet.effects.files import read_text, write_atomically
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fleet.bench.results_folder import ResultsFolder
    from fleet.bench.run_conversations import Asked, StartServer
    from fleet.bench.summarise import Summary
    from fleet.effects.clock import Clock
    from fleet.facts.host_facts import HostFacts
    from fleet.profiles.kinds import ConversationProfile

FIXED = ("suite", "mode", "generate", "seed")


def bench_conversations(
    asked: Asked,
    *,
    folder: ResultsFolder,
    start: StartServer,
    clock: Clock,
    machine: HostFacts,
    tell: Callable[[str], None],
) -> Summary:
    """Measure what `folder` does not hold yet and return the summary of all it holds.

    Raises `UserError` when the folder holds another run, `LockHeld` when another bench
    works on it, and what `run_conversations` raises.
    """
    with folder.locked():
        known = folder.read_run()
        wanted = run_record(asked, machine=machine, at=clock.now().isoformat(timespec="seconds"))
        folder.mend()
        folder.turns()  # a broken folder is refused before a server is started
        folder.write_run(wanted if known is None else _continued(known, wanted, str(folder.path)))
        run_conversations(asked, Bench(folder=folder, start=start, clock=clock, tell=tell))
        return read_summary(folder)


def import_conversations(source: Path, *, folder: ResultsFolder) -> Summary:
    """Make a results folder of the published files in `source`. Raises `UserError`."""
    with folder.locked():
        folder.refuse_used("imported")
        texts = [_read(source / name) for name in ("conv.csv", "conv_trials.jsonl")]
        found = import_conv(*texts, source=str(source))
        for text in found.answers:
            folder.keep_answer(text)
        for name, record in found.servers.items():
            folder.write_server(name, record)
        write_atomically(
            folder.path / "turns.jsonl", "".join(f"{turn.as_line()}\n" for turn in found.turns)
        )
        folder.write_run(found.run)
        return read_summary(folder)


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        fix = "`--import` takes a folder with `conv.csv` and `conv_trials.jsonl`"
        raise UserError("there is no such file", where=str(path), fix=fix) from None


def read_summary(folder: ResultsFolder) -> Summary:
    """Return the summary of a conversation folder, finished or not. Raises `UserError`."""
    run = folder.read_run() or {}
    found = summarise(folder.turns(), conditions=[c["name"] for c in run.get("conditions", ())])
    return replace(found, notes=(*found.notes, *run.get("imported", ())))


def run_record(asked: Asked, *, machine: HostFacts, at: str) -> dict[str, Any]:
    """Return `run.json`: all that was asked, and where."""
    return {
        "suite": "conversation",
        "fleet": __version__,
        "started": at,
        "mode": asked.mode,
        "generate": asked.generate,
        "seed": 42,
        "repeats": asked.repeats,
        "limit_turns": asked.limit_turns,
        "deployments": [subject.deployment.name for subject in asked.subjects],
        "conditions": [
            {
                "name": condition_label(asked, subject, condition.name),
                "deployment": subject.deployment.name,
                "meaning": condition.meaning,
                "settings": dict(condition.settings),
                "cache_prompt": condition.cache_prompt,
                "primed": condition.primed,
            }
            for subject in asked.subjects
            for condition in subject.conditions
        ],
        "conversations": [_conversation(talk) for talk in asked.conversations],
        "machine": machine_record(machine),
    }


def machine_record(machine: HostFacts) -> dict[str, Any]:
    """Return what a reader needs to know of the machine."""
    return {
        "fingerprint": machine.fingerprint,
        "cpu": machine.cpu_model,
        "cores": machine.cores,
        "cpus": len(machine.cpus),
        "memory_bytes": machine.memory_total,
        "gpus": [gpu.name for gpu in machine.gpus],
        "os": machine.os,
        "kernel": machine.kernel,
    }


def _conversation(talk: ConversationProfile) -> dict[str, Any]:
    content = json.dumps([talk.system, *talk.turns], ensure_ascii=False)
    return {
        "name": talk.name,
        "language": talk.language,
        "persona": talk.persona,
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "system": talk.system,
        "turns": list(talk.turns),
    }


def _continued(known: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the record of a run gone on with: more turns, repeats, conditions may be asked.

    Raises `UserError` when what both name is not the same, or the machine is another.
    """
    other = [name for name in FIXED if known.get(name) != wanted[name]]
    for group, keys in (
        ("conditions", ("settings", "cache_prompt", "primed")),
        ("conversations", ("sha256",)),
    ):
        before = {each["name"]: each for each in known.get(group, ())}
        other += [
            f"{group} {each['name']}"
            for each in wanted[group]
            if (old := before.get(each["name"])) and any(old.get(key) != each[key] for key in keys)
        ]
    if known.get("machine", {}).get("fingerprint") != wanted["machine"]["fingerprint"]:
        other.append("the machine")
    if other:
        raise UserError(
            f"this folder holds another run, not the same in: {', '.join(other)}",
            where=where,
            fix="name another folder with `--out`; unlike runs must not be averaged",
        )
    return {
        **wanted,
        "started": known["started"],
        "repeats": max(known["repeats"], wanted["repeats"]),
        **{
            group: list({each["name"]: each for each in (*known[group], *wanted[group])}.values())
            for group in ("conditions", "conversations")
        },
        "deployments": list(dict.fromkeys([*known["deployments"], *wanted["deployments"]])),
    }
