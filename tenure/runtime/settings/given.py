"""What the settings of a process are, and where each came from: a flag, else the environment, else the file, else none.

tenure.yaml, TENURE_*, --flag, --set -> collect -> Settings, and everything that is wrong with them
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tenure.domain.refusal import Refusal
from tenure.runtime.settings.kinds import check_readable
from tenure.runtime.settings.secrets import check_open
from tenure.runtime.settings.setting import Setting
from tenure.runtime.settings.sources import from_environment, from_file, from_sets
from tenure.runtime.settings.table import BY_PATH, POLICY, ROLES, settings_of
from tenure.runtime.settings.together import check_together


class Source(IntEnum):
    """Where a value came from; the larger one wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value as people wrote it; None: it was said that there is none. `where`: the file, variable or flag."""

    value: object
    source: Source
    where: str


class Settings:
    """The settings of one process. What was not given has its default."""

    def __init__(self, given: Mapping[str, Given], *, role: str = "") -> None:
        self.given, self.role = given, role

    def is_given(self, path: str) -> bool:
        """Whether somebody gave it a value."""
        return path in self.given and self.given[path].value is not None

    def raw(self, path: str) -> object:
        """The value as people write it, the default's if none was given."""
        return self.given[path].value if path in self.given else BY_PATH[path].default

    def value(self, path: str) -> object:
        """The value as the code works with it; None where there is neither one nor a default. Raises `Refusal`."""
        raw = self.raw(path)
        return None if raw is None else read(BY_PATH[path], raw, role=self.role, field=self.field(path))

    def field(self, path: str) -> str:
        """What its value is called to whoever gave it."""
        given = self.given.get(path)
        if given is not None and given.source in (Source.FLAG, Source.ENVIRONMENT) and given.where != "--set":
            return given.where
        return path.removeprefix(f"{POLICY}.") if given is not None and given.where == "--set" else path

    def values(self, name: str) -> dict[str, object]:
        """Every key of one section with its value as the code works with it. Raises `Refusal`."""
        return {each.key: self.value(each.path) for each in BY_PATH.values() if each.section == name}

    def section(self, name: str) -> dict[str, object]:
        """What was given of one section, as people write it."""
        below = {path: given.value for path, given in self.given.items() if path.startswith(f"{name}.")}
        return {path.removeprefix(f"{name}."): value for path, value in below.items() if value is not None}


def load_settings(
    *,
    role: str,
    config: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
) -> Settings:
    """The settings of a process of `role`. Raises `Refusal` for the first thing that is wrong; says how many more."""
    settings, wrong = collect(role=role, config=config, environment=environment, flags=flags, sets=sets)
    if wrong:
        first, more = wrong[0], len(wrong) - 1
        fix = f"{first.fix} (and {more} more: `tenure config check` lists all)" if more else first.fix
        raise Refusal(field=first.field, problem=first.problem, fix=fix)
    return settings


def collect(
    *,
    role: str,
    config: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
    look: bool = False,
) -> tuple[Settings, list[Refusal]]:
    """The settings, and all that is wrong with them; `role` empty: for whoever reads them.

    `flags`: by path, what was given as a flag; "" says that there is none. `look`: whether the files that are named
    can be read.
    """
    wrong: list[Refusal] = []
    given: dict[str, Given] = {}
    if config is not None:
        for path, value in from_file(config, wrong).items():
            given[path] = Given(value=value, source=Source.FILE, where=str(config))
    for path, (value, variable) in from_environment(environment, wrong).items():
        given[path] = Given(value=value, source=Source.ENVIRONMENT, where=variable)
    for path, value in from_sets(sets, wrong).items():
        given[path] = Given(value=value, source=Source.FLAG, where="--set")
    for path, value in (flags or {}).items():
        flag = BY_PATH[path].flag
        given[path] = Given(value=None if value == "" else value, source=Source.FLAG, where=flag)
    _choose(given, wrong)
    settings = Settings(given, role=role)
    _check(settings, wrong, look=look)
    return settings, wrong


def read(setting: Setting, raw: object, *, role: str, field: str) -> object:
    """A value as the code works with it. Raises `Refusal`."""
    return setting.kind.read(raw.replace("{role}", role) if role and isinstance(raw, str) else raw, field)


def _choose(given: dict[str, Given], wrong: list[Refusal]) -> None:
    """Of two settings that stand for each other, the one that was said nearer to the process counts."""
    for path, mine in sorted(given.items()):
        other = given.get(BY_PATH[path].instead_of)
        if other is None or mine.value is None or other.value is None:
            continue
        if mine.source < other.source:
            del given[path]
        elif mine.source == other.source and path < BY_PATH[path].instead_of:
            fix = f"keep one of {path} and {BY_PATH[path].instead_of}"
            wrong.append(Refusal(field=path, problem=f"given beside {BY_PATH[path].instead_of}", fix=fix))


def _check(settings: Settings, wrong: list[Refusal], *, look: bool) -> None:
    """Read every value that is read by the role, and of the others what can be read without looking at files."""
    mine = {setting.path for setting in settings_of(settings.role)}
    bad: set[str] = set()
    for path, given in settings.given.items():
        setting = BY_PATH[path]
        if given.value is None or (path not in mine and setting.kind.files):
            continue
        try:
            check_open(given.value, settings.field(path))
            for role in _expanded(setting, given.value, settings.role):
                found = read(setting, given.value, role=role, field=settings.field(path))
                if look and setting.is_opened_by(role) and isinstance(found, Path):
                    check_readable(found, settings.field(path))
        except Refusal as refusal:
            wrong.append(refusal)
            bad.add(setting.section)
    for section in sorted({BY_PATH[path].section for path in settings.given if path in mine} - bad):
        contradiction = check_together(section, settings.section(section))
        if contradiction is not None:
            wrong.append(contradiction)


def _expanded(setting: Setting, value: object, role: str) -> tuple[str, ...]:
    """For whom the value is read: for the role; with `{role}` in it and no role named, for each that reads it."""
    if role or not isinstance(value, str) or "{role}" not in value:
        return (role,)
    return tuple(each for each in ROLES if setting.is_read_by(each))
