"""An image on its way to a host whose sender vanishes is waited for, but not for ever."""

from __future__ import annotations

import subprocess

import pytest

from fleet.deploy.distribute_image import load_words


def test_a_sender_that_falls_silent_is_given_up() -> None:
    words = load_words(0.2, ("sh", "-c", "cat"))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        load.stdin.write(b"half")
        load.stdin.flush()

        assert load.stdout.read() == b"half"  # its end came, though stdin is open still
        assert load.wait(60) == 1


@pytest.mark.parametrize(
    ("load", "code"), [("cat", 0), ("cat >&2; exit 7", 7), ("exec <&-; exit 125", 125)]
)
def test_what_loads_says_how_it_ended(load: str, code: int) -> None:
    archive = b"0" * (1 << 22)

    done = subprocess.run(
        load_words(60, ("sh", "-c", load)), input=archive, capture_output=True, check=False
    )

    assert done.returncode == code
    assert archive in (done.stdout, done.stderr) or code == 125
