"""Where the name of an agent's machine is kept."""

import os
import secrets
from pathlib import Path


def machine_name(folder: Path) -> str:
    """The name of this process on this machine. Raises OSError where it cannot be kept."""
    path = folder / "machine"
    try:
        kept = path.read_text().strip()
    except FileNotFoundError:
        kept = ""
    if not kept:
        folder.mkdir(parents=True, exist_ok=True)
        kept, fresh = secrets.token_hex(4), path.with_suffix(".new")
        fresh.write_text(kept)
        os.replace(fresh, path)
    return f"{kept}.{secrets.token_hex(2)}"
