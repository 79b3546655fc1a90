"""A job as another scheduler recorded it, before it has a shape, a contract and a budget of ours."""

import msgspec


class Record(msgspec.Struct, kw_only=True, gc=False):
    """One job of a source. Times are whole seconds, `submit_s` from the source's own origin.

    `job` is empty where the source names no jobs. `hosts` and `limit_s` are 0 where they are not known.
    """

    job: str
    line: int
    submit_s: int
    runtime_s: int
    gpus: int
    group: str
    """What the source accounts to: a virtual cluster, a group, an account, a class of service."""
    user: str = "unknown"
    hosts: int = 0
    limit_s: int = 0
    qos: str = ""
    partition: str = ""
    budget: str = ""
    """The path that `group` has been given."""
