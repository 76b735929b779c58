"""What is wrong in a profile file, line by line, and the error that carries all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake: its line (from 1), the key's path such as `settings.ctx_size`, what and how."""

    line: int
    path: str
    message: str
    near: str | None = None  # the name that was probably meant
    fix: str | None = None

    def __str__(self) -> str:
        """`path: message`, or the message alone when it concerns the whole file."""
        return f"{self.path}: {self.message}" if self.path else self.message

    @property
    def hint(self) -> str | None:
        """What to do about it, in one line."""
        return f"did you mean `{self.near}`?" if self.near else self.fix


class BadProfile(UserError):
    """A profile file with all its problems; the first one's place is `where`."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        """Say every problem with its line in one message."""
        first, *others = problems
        more = (f"\n{file}:{problem.line}: {problem}{_aside(problem)}" for problem in others)
        super().__init__(
            f"{first}{_aside(first) if others else ''}{''.join(more)}",
            where=f"{file}:{first.line}",
            fix=first.hint if not others else None,
        )
        self.file = file
        self.problems = tuple(problems)


def _aside(problem: Problem) -> str:
    return f" ({problem.hint})" if problem.hint else ""
