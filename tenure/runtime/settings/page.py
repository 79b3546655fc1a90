"""What people read about the settings, made from the table: a commented example file, and docs/configuration.md."""

from collections.abc import Iterator
from textwrap import wrap

from tenure.runtime.settings.setting import Setting
from tenure.runtime.settings.table import POLICY, SECTIONS, SETTINGS

_WIDTH = 110
_EXAMPLE_HEAD = """\
# tenure.yaml: one file for all processes. Every line that is commented out shows the default, or an example.
# Each key may also stand in the environment (nats.url is TENURE_NATS_URL) and in a flag; a flag wins over the
# environment, that over this file. Secrets stand in files of their own, which are named here.
# Check it with `tenure config check FILE`, see what counts with `tenure config show --config FILE`.
"""
_PAGE_HEAD = """\
# Configuration

This page is made from the table of settings (`tenure/runtime/settings/table.py`): `tenure config reference` prints it.

One YAML file serves all processes: `tenure serve ROLE --config tenure.yaml`, `tenure up --config tenure.yaml`. Each
reads what is for it.

    tenure config example > tenure.yaml
    tenure config check tenure.yaml
    tenure config show --config tenure.yaml

The first prints a file with every key, commented out; the second says everything that is wrong with a file, at once;
the third shows what counts and where it comes from. `--json` makes JSON of the last two.

**Where a value comes from.** A flag wins over the environment, the environment over the file, the file over the
default.

| where | how `nats.url` is written there |
|---|---|
| the flag | `--nats URL`; every key has `--set nats.url=URL`, and for the policy `--set lookback=7d` is enough |
| the environment | `TENURE_NATS_URL`: `TENURE_` and the key in capitals, with `_` for the dot |
| the file | `nats:`, and `url: URL` below it |

In the environment and in flags lists and mappings are written as in YAML, `[a, b]` and `{x: admin}`. An empty
variable says nothing. Names that Kubernetes makes for services (`TENURE_NATS_SERVICE_HOST`) are passed over.

**What is refused.** A key that nobody knows, with the nearest known one; a value of another kind or out of its range,
with what would be right. A process does not start then. A variable that begins like a section (`TENURE_NATS_`) and is
no setting is refused, too.

**Secrets** stand in files of their own, for their owner alone (`chmod 600`). A password, token or key in the
configuration or in the environment is refused, and no command shows what is in those files. `{role}` in the name of a
file or folder stands for the name of the role: `key_file: /etc/tenure/keys/nats-{role}.seed` serves all of them.

Relative paths are relative to the directory that the process was started in.
"""


_PAGE_POLICY = """
## Changing the policy

What a running system decides by is in its log. The gateway writes the first policy, from what it was started with.
From then on the log counts, whatever a file says: a process that is started with other values says so, and goes by the
log's.

    tenure config policy
    tenure config apply tenure.yaml
    tenure config apply --set lookback=3d --comment "exam week"
    tenure config history

The first shows what counts, since when, and who set it. `apply FILE` makes the section `policy:` of a file the policy:
a knob that is not named there gets its default. With `--set` alone only those knobs change. It takes the role admin
([security](security.md#who-may-do-what-rights)). `kill -HUP` of a gateway that was started with `--config` applies its
file: send it when the file, or the ConfigMap that it comes from, was changed in place. `tenure up` takes SIGHUP for the
end of its terminal and stops; there `--set KNOB=VALUE` applies those knobs once it is up.

Who did it, from where, each old and each new value become one fact, `PolicyChanged`. Every role decides by it from that
position on, and so does every replay of the log. A change with a mistake in it is refused, and nothing changes. *At run
time: no* marks what a process reads when it starts.

What was promised is kept. A signed contract keeps its minimum runtime, and a host fault refunds as much of it as the
policy allowed when the run was assigned. A promised latest start does not move. A longer `lookback` begins with what
the ranker remembers, and grows to its length as time passes.
"""


def example() -> str:
    """A configuration file with every key, commented out."""
    lines = [_EXAMPLE_HEAD]
    for section, about in SECTIONS.items():
        lines += [f"# {line}" for line in wrap(_plain(about), _WIDTH)]
        if section:
            lines.append(f"#{section}:")
        indent = "  " if section else ""
        for setting in _in(section):
            lines += [f"#{indent}# {line}" for line in wrap(_plain(_told(setting)), _WIDTH)]
            lines.append(f"#{indent}{setting.key}: {_sample(setting)}")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """docs/configuration.md."""
    parts = [_PAGE_HEAD]
    for section, about in SECTIONS.items():
        parts.append(f"\n## {f'The section `{section}:`' if section else 'Keys without a section'}\n\n{about}\n\n")
        parts.append("\n".join(_rows(section)) + "\n")
        if section == POLICY:
            parts.append(_PAGE_POLICY)
    return "".join(parts)


def _rows(section: str) -> Iterator[str]:
    if section == POLICY:
        yield "| key | default | range | at run time | what |"
        yield "|---|---|---|---|---|"
        for each in _in(section):
            limits = each.kind.name.partition(", ")[2]
            yield f"| `{each.key}` | {each.default} | {limits} | {'no' if each.fixed else 'yes'} | {_told(each)} |"
        return
    yield "| key | flag | value | default | what |"
    yield "|---|---|---|---|---|"
    for each in _in(section):
        flag = f"`{each.flag}`" if each.flag else ""
        also = f" (also `{'`, `'.join(each.older)}`)" if each.older else ""
        yield f"| `{each.key}` | {flag} | {each.kind.name} | {_default(each)} | {_told(each)}{also} |"


def _in(section: str) -> Iterator[Setting]:
    return (each for each in SETTINGS if each.section == section)


def _told(setting: Setting) -> str:
    return f"{setting.what}. {setting.fixed.capitalize()}" if setting.fixed else setting.what


def _default(setting: Setting) -> str:
    return setting.default_in_words or ("" if setting.default is None else _written(setting.default))


def _sample(setting: Setting) -> str:
    return (setting.example or setting.kind.example) if setting.default is None else _written(setting.default)


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """Without the marks of Markdown's links."""
    while "](" in text:
        before, _, rest = text.partition("](")
        head, _, name = before.rpartition("[")
        text = head + name + rest.partition(")")[2]
    return text.replace("`", "")
