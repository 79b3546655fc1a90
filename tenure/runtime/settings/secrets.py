"""Secrets stand in files of their own: one in the configuration or the environment is refused, and not shown."""

import re
from urllib.parse import urlsplit

from tenure.domain.refusal import Refusal
from tenure.runtime.settings.table import BY_PATH

_NAMES = ("password", "token", "secret", "key", "seed", "nkey", "passphrase", "credentials", "private_key", "cert_key")
_SEED = re.compile(r"\bS[ACNOUX][A-Z2-7]{50,60}\b")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def secret_key(path: str) -> Refusal | None:
    """The refusal of a key that is no setting and asks for a secret: `clickhouse.token`, where `token_file` is one."""
    section, _, key = path.rpartition(".")
    file = f"{path}_file"
    if file not in BY_PATH:
        if key not in _NAMES:
            return None
        files = [each.path for each in BY_PATH.values() if each.section == section and each.secret]
        file = files[0] if files else ""
    named = f"name that with {file}" if file else "let whoever needs it read that"
    return Refusal(
        field=path,
        problem="a secret does not belong here: whoever sees the configuration would see it",
        fix=f"write it into a file of its own (chmod 600), and {named}",
    )


def check_open(value: object, field: str) -> None:
    """Raise `Refusal` if a value is, or holds, what looks like a secret. What it is is not said."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            check_open(part, field)
    elif isinstance(value, str) and (_SEED.search(value) or _PEM.search(value) or has_password(value)):
        raise Refusal(
            field=field,
            problem="has a secret in it: whoever sees the configuration would see it",
            fix="write it into a file of its own (chmod 600), and name that with the setting that ends in _file",
        )


def has_password(text: str) -> bool:
    """Whether this is an address with a password in it, or several, one of which has one."""
    for part in text.split(","):
        try:
            if "://" in part and urlsplit(part.strip()).password:
                return True
        except ValueError:
            continue
    return False


def without_secrets(value: object) -> object:
    """A value that may be a secret to know, as it is shown: of an address only the server."""
    try:
        parts = urlsplit(str(value))
        return f"{parts.scheme}://{parts.hostname}/..." if parts.hostname else "..."
    except ValueError:
        return "..."
