"""API keys: one a deployment, made once, in a file that only its owner reads."""

from __future__ import annotations

import secrets
import stat
from typing import TYPE_CHECKING

from fleet.effects.files import write_atomically
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.effects.folders import Folders
    from fleet.observe.server_client import ServerClient

OWNER_ONLY = 0o600
KEY_BYTES = 32
UNAUTHORIZED = "HTTP 401"


def key_file(folders: Folders, deployment: str) -> Path:
    """Return where the key of `deployment` lies, whether or not it exists."""
    return folders.config / "keys" / f"{deployment}.key"


def read_key(folders: Folders, deployment: str) -> str | None:
    """Return the key, None when there is none. Raises `OutsideError` when it is unreadable."""
    path = key_file(folders, deployment)
    try:
        mode = path.stat().st_mode
        key = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        fix = f"make it readable for you: `chown $(id -un) {path}; chmod 600 {path}`"
        raise OutsideError(f"cannot read the API key: {reason}", where=str(path), fix=fix) from None
    if not key:
        fix = f"`fleet key {deployment} --rotate` makes a new one"
        raise UserError("the API key file is empty", where=str(path), fix=fix)
    if stat.S_IMODE(mode) & 0o077:
        raise UserError(
            "the API key file can be read by others", where=str(path), fix=f"chmod 600 {path}"
        )
    return key


def ensure_key(folders: Folders, deployment: str) -> str:
    """Return the key, made now if there is none."""
    return read_key(folders, deployment) or rotate_key(folders, deployment)


def rotate_key(folders: Folders, deployment: str) -> str:
    """Replace the key by a new one and return it; running servers keep the old one."""
    key = f"fleet-{secrets.token_urlsafe(KEY_BYTES)}"
    write_atomically(key_file(folders, deployment), f"{key}\n", mode=OWNER_ONLY)
    return key


def is_refused(client: ServerClient, launch: LaunchConfig) -> bool:
    """Whether the server of `launch` wants another key than the client has.

    Raises `OutsideError` when it says neither.
    """
    try:
        client.models() if launch.engine == "vllm" else client.props()
    except OutsideError as error:
        if UNAUTHORIZED not in str(error):
            raise
        return True
    return False
