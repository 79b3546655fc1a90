"""What is known of one setting. Its flag, its variable, its key in the file and its documentation follow from it."""

from collections.abc import Callable
from dataclasses import dataclass

SECTION_MARK = "."
PREFIX = "TENURE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a value is written and read.

    `read` gets the value as people wrote it and the name they wrote it under, and gives what the code works with; it
    raises `Refusal`. `files`: reading looks at a file of this machine. `metavar`: what the help shows for the value.
    """

    name: str
    example: str
    read: Callable[[object, str], object]
    files: bool = False
    metavar: str = "VALUE"
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. `path` is its key in the file: `nats.url` stands below `nats:`.

    `default`: as people would write it; None: nothing, or what `default_in_words` says.
    `example`: instead of its kind's.
    `flag`: its own, if it has one (`--set PATH=VALUE` works for every setting).
    `older`: other variables that it is read from.
    `roles`: who reads it; nobody named means everybody.
    `opened_by`: of those, who opens the file that it names; nobody named means all of them.
    `secret`: the value is the name of a file with a secret.
    `private`: the value is shown without what may be a secret in it.
    `fixed`: for a knob of the policy, why it cannot change while the system runs.
    `instead_of`: the setting that it stands for, or that stands for it.
    """

    path: str
    kind: Kind
    what: str
    default: object = None
    default_in_words: str = ""
    example: str = ""
    flag: str = ""
    older: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    opened_by: tuple[str, ...] = ()
    secret: bool = False
    private: bool = False
    fixed: str = ""
    instead_of: str = ""

    @property
    def section(self) -> str:
        """What it stands below in the file; empty for the topmost keys."""
        return self.path.rpartition(SECTION_MARK)[0]

    @property
    def key(self) -> str:
        """Its name in its section."""
        return self.path.rpartition(SECTION_MARK)[2]

    @property
    def variable(self) -> str:
        """Its name in the environment: the path in capitals, `TENURE_NATS_URL`."""
        return PREFIX + self.path.upper().replace(SECTION_MARK, "_")

    @property
    def argument(self) -> str:
        """The name under which its flag is parsed."""
        return self.flag.lstrip("-").replace("-", "_")

    def is_read_by(self, role: str) -> bool:
        """Whether `role` reads it; empty: whether anybody does."""
        return not role or not self.roles or role in self.roles

    def is_opened_by(self, role: str) -> bool:
        """Whether `role`, which reads it, opens the file that it names; empty: whether anybody does."""
        return self.kind.files and (not role or not self.opened_by or role in self.opened_by)
