"""Measure conversations under conditions, one fresh server a cell, until every turn is there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fleet.bench.ask import Reply, ask, chat_body
from fleet.bench.order import Cell, plan_order
from fleet.bench.server_identity import identity, refuse_other_conditions, refuse_other_start
from fleet.bench.turn import Turn
from fleet.deploy.shared_prompt import shared_tokens
from fleet.effects.http import NoAnswer
from fleet.effects.machine import load_average
from fleet.errors import EngineFailed, OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from fleet.bench.ask import Message
    from fleet.bench.conditions import Condition
    from fleet.bench.results_folder import ResultsFolder
    from fleet.deploy.trial_server import TrialServer
    from fleet.effects.clock import Clock
    from fleet.profiles.kinds import ConversationProfile, Deployment, SettingScalar

RETRIES = 3
RESTARTS = 3  # of one cell, before its server is given up
RETRY_WAIT_S = 1.0
Mode = Literal["replay", "free"]


class StartServer(Protocol):
    """Starts a deployment's server with overrides, on a port of its own."""

    def __call__(
        self, deployment: Deployment, *, overrides: Mapping[str, SettingScalar]
    ) -> AbstractContextManager[TrialServer]:
        """Return a ready server; leaving ends it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One deployment of a run with its conditions."""

    deployment: Deployment
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a conversation run is to measure. `generate` bounds the tokens of an answer."""

    subjects: tuple[Subject, ...]
    conversations: tuple[ConversationProfile, ...]
    mode: Mode = "replay"
    repeats: int = 1
    limit_turns: int | None = None
    generate: int = 128

    def turns(self, conversation: ConversationProfile) -> tuple[str, ...]:
        """Return the turns of `conversation` that are asked for."""
        return conversation.turns[: self.limit_turns]


@dataclass(kw_only=True, slots=True)
class Bench:
    """The rim of a run: where results go, how servers start, what time it is."""

    folder: ResultsFolder
    start: StartServer
    clock: Clock
    tell: Callable[[str], None]
    left: int = 0  # turns still to measure
    spent_s: list[float] = field(default_factory=list)  # of the turns measured here


def condition_label(asked: Asked, subject: Subject, condition: str) -> str:
    """Return the name of a condition in the results: with its deployment if there are more."""
    return condition if len(asked.subjects) == 1 else f"{subject.deployment.name}:{condition}"


def run_conversations(asked: Asked, bench: Bench) -> None:
    """Measure every turn of `asked` that the folder does not hold yet.

    Raises `UserError` for a turn beyond the context, `NotAsWanted` when servers are not what
    was asked, `EngineFailed` when a server dies again and again. What was measured stays.
    """
    done = {turn.key for turn in bench.folder.turns()}
    work = [
        _Work.of(asked, subject, cell, missing)
        for subject in asked.subjects
        for cell in plan_order(
            deployments=(subject.deployment.name,),
            conversations=tuple(talk.name for talk in asked.conversations),
            conditions=tuple(condition.name for condition in subject.conditions),
            repeats=asked.repeats,
        )
        if (missing := _missing(asked, subject, cell, done))
    ]
    bench.left = sum(len(cell.missing) for cell in work)
    bench.tell(f"{bench.left} turns to measure, {len(done)} are there")
    for cell in work:
        _measure_cell(cell, bench)


def _missing(asked: Asked, subject: Subject, cell: Cell, done: set[Any]) -> list[int]:
    talk = next(talk for talk in asked.conversations if talk.name == cell.conversation)
    label = condition_label(asked, subject, cell.condition)
    return [
        number
        for number in range(1, len(asked.turns(talk)) + 1)
        if (talk.name, label, cell.repeat, number) not in done
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    """One cell with all it needs."""

    asked: Asked
    subject: Subject
    condition: Condition
    talk: ConversationProfile
    label: str
    repeat: int
    missing: list[int]  # shrinks as turns are measured

    @classmethod
    def of(cls, asked: Asked, subject: Subject, cell: Cell, missing: list[int]) -> _Work:
        return cls(
            asked=asked,
            subject=subject,
            condition=next(c for c in subject.conditions if c.name == cell.condition),
            talk=next(t for t in asked.conversations if t.name == cell.conversation),
            label=condition_label(asked, subject, cell.condition),
            repeat=cell.repeat,
            missing=missing,
        )

    @property
    def name(self) -> str:
        return f"{self.talk.name} {self.label} repeat {self.repeat}"

    @property
    def log_name(self) -> str:
        return f"{self.label}-{self.talk.name}-{self.repeat}"


def _measure_cell(work: _Work, bench: Bench) -> None:
    """Measure the cell's missing turns; a server that dies is started again."""
    restarts = retries = 0
    while work.missing:
        bench.tell(f"{work.name}: starting the server")
        try:
            with bench.start(work.subject.deployment, overrides=work.condition.settings) as server:
                try:
                    talk = _Talk(work=work, bench=bench, server=server, retries=retries)
                    talk.refuse_beyond_context()  # before the folder is bound to this context
                    _check_identity(work, bench, server)
                    talk.go()
                finally:
                    with suppress(OutsideError):  # the log must not hide why the cell ended
                        bench.folder.keep_log(work.log_name, server.log_lines())
        except _ServerDied as died:
            restarts += 1
            retries = died.retries
            if restarts > RESTARTS:
                raise EngineFailed(
                    f"the server of {work.name} died {restarts} times: {died.last_line}",
                    where=work.label,
                    fix="see the log with `fleet diagnose`; a smaller context or batch may help",
                ) from None
            bench.tell(f"{work.name}: the server died, starting it again")


class _ServerDied(Exception):
    """The process is gone; carries the tries of the turn it took with it."""

    def __init__(self, retries: int, last_line: str) -> None:
        super().__init__(last_line)
        self.retries = retries
        self.last_line = last_line


@dataclass(kw_only=True, slots=True)
class _Talk:
    """One conversation with one fresh server."""

    work: _Work
    bench: Bench
    server: TrialServer
    retries: int  # that the next turn has cost already
    asked_before: bool = False
    answers: dict[int, str] = field(default_factory=dict)

    def go(self) -> None:
        self.answers = self._recorded_answers()
        if self.work.condition.primed:
            self._prime()
        first = self.work.missing[0]
        if first > 1:
            # the cache as it was after the turn before: sent again, not counted
            self._answer(first - 1)
        while self.work.missing:
            self._measure(self.work.missing[0])

    def _measure(self, number: int) -> None:
        cold = not self.asked_before
        started = self.bench.clock.monotonic()
        reply = self._answer(number)
        self._record(number, reply, cold=cold)
        self.retries = 0
        self.work.missing.pop(0)
        self._tell_progress(number, self.bench.clock.monotonic() - started)

    def _answer(self, number: int) -> Reply:
        """Ask turn `number`; a cut connection is tried again, with the count kept."""
        fixed = self.work.asked.mode == "replay"
        body = chat_body(
            self._messages(number),
            generate=self.work.asked.generate,
            fixed=fixed,
            cache_prompt=self.work.condition.cache_prompt,
        )
        while True:
            try:
                reply = ask(self.server.client, body, clock=self.bench.clock)
            except OutsideError as error:
                self._refuse_if_too_long(error, number)
                self.retries += 1
                if not self.server.alive():
                    raise _ServerDied(self.retries, _last_line(self.server)) from None
                if self.retries > RETRIES or not _may_pass(error):
                    raise
                self.bench.clock.sleep(RETRY_WAIT_S)
            else:
                self.asked_before = True
                return reply

    def _messages(self, number: int) -> list[Message]:
        messages = [{"role": "system", "content": self.work.talk.system}]
        for place, said in enumerate(self.work.talk.turns[:number], 1):
            messages.append({"role": "user", "content": said})
            if place < number:
                messages.append({"role": "assistant", "content": self.answers[place]})
        return messages

    def _recorded_answers(self) -> dict[int, str]:
        """Return the answers that stand in the history: the reference, or one's own."""
        folder, work = self.bench.folder, self.work
        if work.asked.mode == "replay":
            mine = (work.subject.deployment.name, work.talk.name)
            known = {key[2]: sha for key, sha in folder.references().items() if key[:2] == mine}
        else:
            own = (work.talk.name, work.label, work.repeat)
            known = {t.turn: t.answer_sha256 for t in folder.turns() if t.key[:3] == own}
        return {turn: folder.answer(digest) for turn, digest in known.items()}

    def _record(self, number: int, reply: Reply, *, cold: bool) -> None:
        """Write the answer, the reference, the sample, and last the line that counts."""
        work, folder = self.work, self.bench.folder
        digest = folder.keep_answer(reply.content)
        if work.asked.mode == "replay" and number not in self.answers:
            folder.add_reference(work.subject.deployment.name, work.talk.name, number, digest)
        self.answers.setdefault(number, reply.content)
        turn = Turn(
            conversation=work.talk.name,
            condition=work.label,
            repeat=work.repeat,
            turn=number,
            processed_tokens=reply.timings.prompt_n,
            cached_tokens=reply.timings.cache_n,
            generated_tokens=reply.timings.predicted_n,
            prefill_ms=round(reply.timings.prompt_ms, 3),
            decode_ms=round(reply.timings.predicted_ms, 3),
            ttft_ms=round(reply.ttft_ms, 3),
            wall_ms=round(reply.wall_ms, 3),
            draft_n=reply.timings.draft_n,
            draft_accepted=reply.timings.draft_n_accepted,
            cold=cold,
            retries=self.retries,
            answer_sha256=digest,
        )
        folder.add_sample({
            "conversation": turn.conversation,
            "condition": turn.condition,
            "repeat": turn.repeat,
            "turn": turn.turn,
            "memory_bytes": self.server.memory_bytes(),
            "load": load_average(),
            "timed_by": reply.timed_by,
        })  # fmt: skip
        folder.add_turn(turn)

    def _prime(self) -> None:
        """Send the shared part, up to where the first message begins, to every slot."""
        client = self.server.client
        system = {"role": "system", "content": self.work.talk.system}
        prefix = shared_tokens((system,), raw=False, server=client)
        for slot in range(max(1, len(client.slots()))):
            client.completion({
                "prompt": list(prefix), "n_predict": 1, "cache_prompt": True, "id_slot": slot,
            })  # fmt: skip
        self.asked_before = True

    def refuse_beyond_context(self) -> None:
        """Refuse before measuring when the conversation cannot fit the context."""
        with suppress(OutsideError, KeyError):
            context = self.server.client.context()
            sizes = [
                len(self.server.client.tokenize(text, special=False))
                for text in (self.work.talk.system, *self.work.asked.turns(self.work.talk))
            ]
            answer = self.work.asked.generate if self.work.asked.mode == "replay" else 0
            need = sizes[0]
            for number, size in enumerate(sizes[1:], 1):
                need += size + answer
                if context is not None and need > context:
                    raise _beyond(self.work, number, f"at least {need} tokens", str(context))

    def _refuse_if_too_long(self, error: OutsideError, number: int) -> None:
        if "context" in error.message and "exceed" in error.message:
            raise _beyond(self.work, number, "more", "smaller") from None

    def _tell_progress(self, number: int, seconds: float) -> None:
        bench = self.bench
        bench.left -= 1
        bench.spent_s.append(seconds)
        minutes = bench.left * sum(bench.spent_s) / len(bench.spent_s) / 60
        bench.tell(
            f"{self.work.name} turn {number}: {bench.left} turns left, about {minutes:.0f} min"
        )


def _beyond(work: _Work, number: int, need: str, context: str) -> UserError:
    return UserError(
        f"turn {number} of {work.talk.name} needs {need}, the context is {context}",
        where=f"{work.talk.place}",
        fix=f"`--set ctx_size=...`, or `--limit-turns {max(number - 1, 1)}`",
    )


def _may_pass(error: OutsideError) -> bool:
    """Whether the same request could succeed: silence and 5xx may, 4xx will not."""
    return isinstance(error, NoAnswer) or error.message.startswith("HTTP 5")


def _last_line(server: TrialServer) -> str:
    lines = [line for line in server.log_lines() if line.strip()]
    return lines[-1] if lines else "its log is empty"


def _check_identity(work: _Work, bench: Bench, server: TrialServer) -> None:
    """Record what this condition's server is, or refuse one that is another."""
    props: Mapping[str, Any] = {}
    with suppress(OutsideError):
        props = server.client.props()
    now = identity(server.launch, props, server.log_lines())
    known = bench.folder.server(work.label)
    if known is None:
        record = {
            "condition": work.label,
            "meaning": work.condition.meaning,
            "deployment": work.subject.deployment.name,
            "overrides": dict(work.condition.settings),
            "cache_prompt": work.condition.cache_prompt,
            "primed": work.condition.primed,
            "load_s": server.load_s,
            "identity": now,
        }
        bench.folder.write_server(work.label, record)
    else:
        refuse_other_start(known["identity"], now, work.label)
    _check_conditions(work, bench)


def _check_conditions(work: _Work, bench: Bench) -> None:
    labels: Sequence[str] = [
        condition_label(work.asked, work.subject, c.name) for c in work.subject.conditions
    ]
    records = {name: known for name in labels if (known := bench.folder.server(name))}
    refuse_other_conditions(
        {name: known["identity"] for name, known in records.items()},
        {name: known["overrides"] for name, known in records.items()},
    )
