"""The three places where settings are written: the file, the environment, `--set`. Unknown names are refused."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tenure.domain.nearest import did_you_mean, shown, unknown_key
from tenure.domain.refusal import Refusal
from tenure.runtime.settings.secrets import secret_key
from tenure.runtime.settings.setting import PREFIX, Setting
from tenure.runtime.settings.table import BY_PATH, POLICY, SECTIONS, SETTINGS
from tenure.runtime.yaml_file import load_yaml, parse_yaml

_SECTIONS = tuple(name for name in SECTIONS if name)
_KEYS: Mapping[str, tuple[str, ...]] = {
    section: tuple(each.key for each in SETTINGS if each.section == section) for section in SECTIONS
}
NOT_OURS = frozenset({"TENURE_REPAIR_SSH"})
"""Variables that look like settings and are read by something else: the recipes of deploy/repair."""
_PUBLIC_KEY = re.compile(r"U[A-Z2-7]{55}")
"""What deploy/nats/users.conf reads from TENURE_NATS_GATEWAY and the like, for the servers themselves."""
_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
"""Kubernetes tells every container of the services beside it, in variables of such names."""


def from_file(config: Path, wrong: list[Refusal]) -> dict[str, object]:
    """What the file says, by path. What is wrong is added to `wrong`, an unreadable file too."""
    try:
        document = load_yaml(config)
    except Refusal as refusal:
        wrong.append(refusal)
        return {}
    if document is None:
        return {}
    if not isinstance(document, dict):
        fix = "write 'policy:' and knobs below it; `tenure config example` shows all there is"
        wrong.append(Refusal(field=str(config), problem="not a configuration file", fix=fix))
        return {}
    found: dict[str, object] = {}
    for name, value in document.items():
        if name in _KEYS[""]:
            found[name] = value
        elif not isinstance(name, str) or name not in _SECTIONS:
            wrong.append(unknown(str(name) if isinstance(name, str) else shown(name), where=""))
        else:
            found |= _section(name, value, wrong)
    return {path: value for path, value in found.items() if value is not None}


def _section(name: str, value: object, wrong: list[Refusal]) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        fix = "write one 'key: value' a line below it"
        wrong.append(Refusal(field=name, problem="not a mapping", fix=fix))
        return {}
    found: dict[str, object] = {}
    for key, given in value.items():
        if isinstance(key, str) and key in _KEYS[name]:
            found[f"{name}.{key}"] = given
        elif isinstance(key, str):
            wrong.append(unknown(key, where=name))
        else:
            fix = "write one 'key: value' a line"
            wrong.append(Refusal(field=name, problem=f"{str(key)[:40]!r} is no key", fix=fix))
    return found


def unknown(key: str, *, where: str) -> Refusal:
    """The refusal of a key that is no setting: a secret, one that stands elsewhere, or one that is near to another."""
    path = f"{where}.{key}" if where else key
    if len(path) < 100 and path.isprintable():
        secret = secret_key(path)
        if secret is not None:
            return secret
        elsewhere = [each.path for each in SETTINGS if each.key == key]
        if elsewhere:
            return Refusal(field=path, problem="unknown key", fix=f"did you mean {' or '.join(elsewhere)}?")
    return unknown_key(key, known=_KEYS[where] if where else (*_KEYS[""], *_SECTIONS), where=where)


def from_environment(environment: Mapping[str, str], wrong: list[Refusal]) -> dict[str, tuple[object, str]]:
    """What the environment says, by path, with the variable. An empty variable says nothing."""
    found: dict[str, tuple[object, str]] = {}
    for setting in SETTINGS:
        for variable in (setting.variable, *setting.older):
            if environment.get(variable, "").strip() and setting.path not in found:
                found[setting.path] = (_parsed(setting, environment[variable].strip(), wrong), variable)
    known = {name for setting in SETTINGS for name in (setting.variable, *setting.older)}
    for name in sorted(environment):
        ours = any(name.startswith(f"{PREFIX}{section.upper()}_") for section in _SECTIONS)
        others = name in NOT_OURS or _SERVICE.search(name) or _PUBLIC_KEY.fullmatch(environment[name])
        if ours and name not in known and not others:
            path = name.removeprefix(PREFIX).lower().replace("_", ".", 1)
            secret = secret_key(path)
            near = did_you_mean(name, sorted(known))
            fix = f"{near}`tenure config show` lists them; unset it if it is not for tenure"
            problem = "unknown variable" if secret is None else secret.problem
            wrong.append(Refusal(field=name, problem=problem, fix=fix if secret is None else secret.fix))
    return found


def from_sets(sets: Iterable[str], wrong: list[Refusal]) -> dict[str, object]:
    """What `--set` says, by path: `KNOB=VALUE` for the policy, `PATH=VALUE` for the rest."""
    found: dict[str, object] = {}
    for setting in sets:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            wrong.append(Refusal(field="--set", problem=f"{setting[:60]!r} has no '='", fix="write --set key=value"))
            continue
        name = key.strip()
        section, dot, rest = name.partition(".")
        path = name if dot or name in _KEYS[""] else f"{POLICY}.{name}"
        if path in BY_PATH:
            found[path] = _parsed(BY_PATH[path], value.strip(), wrong)
        elif dot and section in _SECTIONS:
            wrong.append(unknown(rest, where=section))
        else:
            wrong.append(unknown(name, where=POLICY))
    return found


def _parsed(setting: Setting, text: str, wrong: list[Refusal]) -> object:
    """A list or a mapping may be written as in YAML, on one line."""
    opening = setting.kind.example[:1]
    if opening not in ("[", "{") or not text.startswith(opening):
        return text
    try:
        return parse_yaml(text.encode(errors="replace"), name=setting.path)
    except Refusal as refusal:
        wrong.append(refusal)
        return None
