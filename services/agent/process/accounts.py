"""Whose processes a job's are: the account of its submitter on this host."""

import os
import pwd

from services.agent.process.spec import Account

UID_MIN = 1_000
"""Below are root and the accounts of the system itself (login.defs, systemd): no job is theirs."""


class NoAccount(Exception):
    """The user cannot have processes here: one line that says why."""


def account_of(user: str) -> Account:
    """The account of a user. May ask a directory service and block. Raises `NoAccount`."""
    try:
        found = pwd.getpwnam(user)
    except (KeyError, ValueError) as error:
        raise NoAccount(f"this host knows no user {user[:64]!r}: jobs run as who submitted them") from error
    if found.pw_uid < UID_MIN:
        raise NoAccount(f"{user[:64]!r} is an account of the system (uid {found.pw_uid}): jobs run as people only")
    return Account(
        name=found.pw_name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=tuple(os.getgrouplist(found.pw_name, found.pw_gid)),
        home=found.pw_dir,
        shell=found.pw_shell,
    )
