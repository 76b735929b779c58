"""One measured turn of a conversation, as a line of `turns.jsonl` and as a value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

TurnKey = tuple[str, str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What one turn cost, in tokens and milliseconds.

    `processed_tokens` were computed in this turn, `cached_tokens` were not: the prompt is
    their sum. `prefill_ms` and `decode_ms` are the server's own, `ttft_ms` and `wall_ms` the
    client's. `cold` marks the first request that a fresh server answers.
    """

    conversation: str
    condition: str
    repeat: int
    turn: int
    processed_tokens: int
    cached_tokens: int
    generated_tokens: int
    prefill_ms: float
    decode_ms: float
    ttft_ms: float
    wall_ms: float
    draft_n: int
    draft_accepted: int
    cold: bool
    retries: int
    answer_sha256: str

    @property
    def key(self) -> TurnKey:
        """What must occur once in a run."""
        return (self.conversation, self.condition, self.repeat, self.turn)

    def as_line(self) -> str:
        """Return the line of `turns.jsonl`, without its end."""
        return json.dumps(asdict(self), ensure_ascii=False)


_TYPES = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def parse_turns(text: str, *, source: str) -> tuple[Turn, ...]:
    """Read `turns.jsonl`; a last line without its end was cut by a kill and is left out.

    Raises `UserError` with `source:line` for a line that is no turn or a turn given twice.
    """
    lines = text.split("\n")[:-1]
    turns = tuple(
        _parse_turn(line, f"{source}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    )
    _refuse_doubles(turns, source)
    return turns


def _parse_turn(line: str, where: str) -> Turn:
    try:
        content = json.loads(line)
    except ValueError:
        raise UserError("this line is not JSON", where=where, fix=_FIX) from None
    if not isinstance(content, dict):
        raise UserError("this line is no JSON object", where=where, fix=_FIX)
    wanted = {field.name: _TYPES[str(field.type)] for field in fields(Turn)}
    if content.keys() != wanted.keys():
        odd = sorted(content.keys() ^ wanted.keys())
        message = f"missing or unknown fields: {', '.join(f'`{name}`' for name in odd)}"
        raise UserError(message, where=where, fix=_FIX)
    for name, types in wanted.items():
        value = content[name]
        if not isinstance(value, types) or (isinstance(value, bool) and types != (bool,)):
            raise UserError(f"`{name}` is {json.dumps(value)}", where=where, fix=_FIX)
    return Turn(**content)


_FIX = "this folder was written by another version, or edited; start a new one with `--out`"


def _refuse_doubles(turns: Iterable[Turn], source: str) -> None:
    seen: set[TurnKey] = set()
    for number, turn in enumerate(turns, 1):
        if turn.key in seen:
            what = f"turn {turn.turn} of {turn.conversation} {turn.condition}"
            message = f"{what}, repeat {turn.repeat}, is there twice"
            raise UserError(message, where=f"{source}:{number}", fix=_FIX)
        seen.add(turn.key)
