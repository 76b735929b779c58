"""The page of a diagnosis: what each task reused, drawn; hostile text stays text."""

from __future__ import annotations

import re

from fleet.diagnose.diagnosis import diagnose
from fleet.report.diagnosis_page import diagnosis_page

HEAD = "slot update_slots: id  0 | task {0} | "
TASK = (
    HEAD + "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 400\n"
    + HEAD + "n_tokens = {1}, memory_seq_rm [{1}, end)\n"
    + "slot print_timing: id  0 | task {0} | \n"
    "prompt eval time =     500.00 ms /   {2} tokens (    5.00 ms per token,   200.00 tokens"
    " per second)\n"
    "       eval time =    1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens"
    " per second)\n"
    "slot      release: id  0 | task {0} | stop processing: n_tokens = 449, truncated = 0\n"
)  # fmt: skip
LAUNCH = "slot launch_slot_: id  0 | task {0} | processing task\n"


def page_of(log: str) -> str:
    return diagnosis_page(diagnose([log.encode()]), title="<log> & friends")


def test_each_task_is_a_bar_of_its_tokens() -> None:
    log = "".join((LAUNCH + TASK).format(n, *t) for n, t in ((0, (0, 400)), (51, (300, 100))))

    page = page_of(log)

    assert re.findall(r"<title>(\w+: \d+)</title>", page)[:5] == [
        "processed: 400", "generated: 50", "cached: 300", "processed: 100", "generated: 50",
    ]  # fmt: skip
    assert "PARTIAL_REUSE" in page


def test_a_log_without_tasks_says_so_and_its_text_is_escaped() -> None:
    page = page_of("error: invalid argument: --<script>alert(1)</script>\n")

    assert "No task stands in this log" in page
    assert "<script>alert" not in page
    assert "&lt;log&gt; &amp; friends" in page
