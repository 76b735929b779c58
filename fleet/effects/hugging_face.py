"""A program of its own for Hugging Face, so that only a fetch pays for the library.

`python -m fleet.effects.hugging_face list REPO` prints `[{"name", "size", "sha256"}]`;
`... get REPO FILE FOLDER` fetches one file, going on where an earlier fetch was cut.
"""

from __future__ import annotations

import json
import sys

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

FAILED = 5


def main(words: list[str]) -> int:
    """Do what `words` ask; the cause of a failure is one line on stderr."""
    try:
        match words:
            case ["list", repo]:
                print(json.dumps(repo_files(repo)))  # noqa: T201 - the answer
            case ["get", repo, file, folder]:
                hf_hub_download(repo, file, local_dir=folder)
            case _:
                return 2
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        print(lines[0] if lines else type(error).__name__, file=sys.stderr)  # noqa: T201
        return FAILED
    return 0


def repo_files(repo: str) -> list[dict[str, str | int | None]]:
    """Return name, size in bytes and sha256 (of large files) of each file of `repo`."""
    siblings = HfApi().model_info(repo, files_metadata=True).siblings or []
    return [
        {"name": file.rfilename, "size": file.size, "sha256": file.lfs.sha256 if file.lfs else None}
        for file in siblings
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
