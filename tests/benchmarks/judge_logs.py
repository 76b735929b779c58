"""Run every case of a folder (NAME.log beside NAME.json) and list what is missed.

    python tests/benchmarks/judge_logs.py FOLDER

A case names `engine`, `generation` and `expected`: numbers by the words of `diagnose
--json`, `findings` that must be there, `not_findings` that must not, `accept_any` groups
of which one is enough. Numbers must agree to the digits printed in the case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fleet.diagnose.diagnosis import diagnose
from fleet.diagnose.diagnosis_json import diagnosis_json

NOT_FIGURES = {"findings", "not_findings", "accept_any", "verdict"}


def main(folder: Path) -> int:
    tally = {"findings": [0, 0], "traps": [0, 0], "figures": [0, 0]}
    for case in sorted(folder.glob("*.json")):
        misses = judge(case, tally)
        print(f"{'ok  ' if not misses else 'MISS'} {case.stem}")
        for miss in misses:
            print(f"       {miss}")
    for kind, (good, of) in tally.items():
        print(f"{kind}: {good} of {of}")
    return 0 if all(good == of for good, of in tally.values()) else 1


def judge(case: Path, tally: dict[str, list[int]]) -> list[str]:
    asked = json.loads(case.read_text())
    answer = diagnosis_json(diagnose([case.with_suffix(".log").read_bytes()]))
    answer = json.loads(json.dumps(answer))
    expected = asked["expected"]
    misses: list[str] = []
    found = {finding["code"] for finding in answer["findings"]}
    groups = [set(group) for group in expected.get("accept_any", [])]
    for code in expected.get("findings", []):
        good = code in found or any(code in group and group & found for group in groups)
        _count(tally["findings"], good, f"finding missing: {code}", misses)
    for code in expected.get("not_findings", []):
        _count(tally["traps"], code not in found, f"trap reported: {code}", misses)
    for word in ("engine", "generation"):
        good = asked.get(word) in {None, answer[word]}
        _count(tally["figures"], good, f"{word}: {answer[word]} not {asked.get(word)}", misses)
    for word, want in expected.items():
        if word not in NOT_FIGURES:
            _figure(word, want, answer.get(word), tally["figures"], misses)
    return misses


def _figure(path: str, want: Any, have: Any, tally: list[int], misses: list[str]) -> None:
    if isinstance(want, dict):
        for key, value in want.items():
            inner = have.get(key) if isinstance(have, dict) else None
            _figure(f"{path}.{key}", value, inner, tally, misses)
    elif isinstance(want, list) and want and isinstance(want[0], dict):
        for index, value in enumerate(want):
            inner = _same_entry(value, have or [], index)
            _figure(f"{path}[{index}]", value, inner, tally, misses)
    else:
        _count(tally, same(want, have), f"{path}: {have!r} not {want!r}", misses)


def _same_entry(want: dict[str, Any], have: list[Any], index: int) -> Any:
    if "task" in want:
        return next((one for one in have if one.get("task") == want["task"]), None)
    return have[index] if index < len(have) else None


def same(want: Any, have: Any) -> bool:
    """Whether two figures agree to the digits that the case prints."""
    if isinstance(want, list):
        pairs = zip(want, have or [], strict=False)
        return len(want) == len(have or []) and all(same(*pair) for pair in pairs)
    if isinstance(want, bool) or not isinstance(want, int | float):
        return bool(want == have)
    if have is None or isinstance(have, str):
        return False
    digits = len(repr(want).partition(".")[2]) if isinstance(want, float) else 0
    return bool(abs(want - have) <= 0.5 * 10**-digits + 1e-9)


def _count(tally: list[int], good: bool, miss: str, misses: list[str]) -> None:
    tally[1] += 1
    tally[0] += good
    if not good:
        misses.append(miss)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
