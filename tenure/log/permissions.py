"""Who may write what: one table, from which the users of every nats-server are made (decision 0015).

    python -m tenure.log.permissions --cluster NAME --hosts host-a,host-b --keys DIR > users.conf

makes a key for each user that has none in DIR and prints the users for a server's configuration. Whatever is not in
the table is refused by the server. Everybody below may read the whole log, nobody but the operator may make, change or
remove one; each hears answers only under a name of its own.

The server sends an answer wherever the question says. So nobody but the operator may ask what is answered with bytes
that another has stored (DIRECT.GET), and no reader believes a subject alone.
"""

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nkeys

from tenure.domain.ids import HostId
from tenure.domain.names import check_word
from tenure.domain.refusal import Refusal
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import KINDS, Kind
from tenure.events.fact import Lane
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.leading import BudgetLeadTaken, RankerLeadTaken
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished
from tenure.log.access import inbox_of
from tenure.log.lease import BUCKET
from tenure.log.link import API
from tenure.log.subjects import Subjects, host_token

DOMAIN_API = "$JS.tenure.API"
"""What servers of sites make of `API`: `deploy/nats/leaf.conf`."""
OPERATOR, GATEWAY, AGENT, FORECAST, READER = "operator", "gateway", "agent", "forecast", "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one user may do beside reading. `host`: of reports, only those of this host; None: of any."""

    writes: tuple[Kind, ...] = ()
    host: HostId | None = None
    asks_agents: bool = False
    answers_gateway: bool = False
    asks_forecast: bool = False
    forecasts: bool = False
    lists_readers: bool = False
    keeps_letters: bool = False
    """Whether it may keep what is no fact: decision 0018."""
    condemns: bool = False
    """Whether it may have a fact passed over that it cannot fold."""
    lease: str = ""
    """Whose lease it may take: decision 0014."""


GRANTS: Mapping[str, Grant] = {
    GATEWAY: Grant(
        writes=(
            JobSubmitted,
            JobCancelRequested,
            DrainRequested,
            ResumeRequested,
            RepairCompleted,
            BudgetTreeChanged,
            PolicyChanged,
        ),
        asks_agents=True,
        asks_forecast=True,
        keeps_letters=True,
        condemns=True,
    ),
    "budget": Grant(
        writes=(JobAdmitted, JobRejected, RunCharged, BudgetLeadTaken),
        keeps_letters=True,
        condemns=True,
        lease="budget",
    ),
    "ranker": Grant(writes=(RankingPublished, RankerLeadTaken), keeps_letters=True, condemns=True, lease="ranker"),
    "placer": Grant(
        writes=tuple(kind for kind in KINDS.values() if kind.lane is Lane.RUNS),
        keeps_letters=True,
        condemns=True,
        lease="placer",
    ),
    "health": Grant(
        writes=(*(kind for kind in KINDS.values() if kind.lane is Lane.HOSTS), RepairCompleted),
        keeps_letters=True,
        condemns=True,
        lease="health",
    ),
    AGENT: Grant(writes=tuple(kind for kind in KINDS.values() if kind.lane is Lane.REPORT), answers_gateway=True),
    "journal": Grant(keeps_letters=True, condemns=True, lease="journal"),
    FORECAST: Grant(forecasts=True, keeps_letters=True),
    READER: Grant(lists_readers=True),
}
"""By user. `agent` here speaks for any host: for virtual hosts. One of a real host is `agent_of(host)`."""


def agent_of(host: HostId | None) -> str:
    """The user that speaks for one real host; None: for any."""
    return AGENT if host is None else f"{AGENT}-{host}"


def users(hosts: Sequence[HostId] = ()) -> dict[str, Grant | None]:
    """Everybody who is let in, with an agent for each of `hosts`, or without any the one of all. None: may all."""
    shared = {name: grant for name, grant in GRANTS.items() if name != AGENT or not hosts}
    own = {agent_of(host): replace(GRANTS[AGENT], host=host) for host in hosts}
    return {OPERATOR: None, **shared, **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Hosts whose agents reach the log through a server of their own."""

    name: str
    hosts: tuple[HostId, ...]

    @property
    def user(self) -> str:
        """As whom that server connects to the log's servers. It may what its agents may, together."""
        return f"leaf-{self.name}"

    @property
    def agents(self) -> dict[str, Grant]:
        """The users of that server."""
        return {agent_of(host): replace(GRANTS[AGENT], host=host) for host in self.hosts}


def may_publish(grant: Grant, *, cluster: str) -> list[str]:
    """The subjects a user may write to: its facts, and what reading takes."""
    subjects = Subjects(cluster)
    verbs = ["STREAM.INFO.{}", "STREAM.MSG.GET.{}", "CONSUMER.CREATE.{}", "CONSUMER.MSG.NEXT.{}.*"]
    verbs += ["CONSUMER.DELETE.{}.*"] + ["CONSUMER.LIST.{}"] * grant.lists_readers
    api = [f"{API}.{verb.format(subjects.stream)}" for verb in verbs]
    api += [f"{API}.{verb}.{subjects.dead_stream}" for verb in ("STREAM.INFO", "STREAM.MSG.GET")]
    api += _lease(f"{cluster}.{grant.lease}") if grant.lease else []
    api += [f"{API}.{verb}.KV_{BUCKET}" for verb in ("STREAM.INFO", "STREAM.MSG.GET")] * grant.lists_readers
    letters = [subjects.every_unreadable] * grant.keeps_letters + [subjects.every_condemned] * grant.condemns
    asking = [f"tenure-data.{cluster}.logs.*"] if grant.asks_agents else []
    asking += [f"tenure-data.{cluster}.forecast"] if grant.asks_forecast else []
    own = subjects if grant.host is None else Subjects(cluster, speaker=grant.host)
    return [*api, *asking, *letters, *sorted(own.written(kind) for kind in grant.writes)]


def _lease(key: str) -> list[str]:
    """To take it; and to make the bucket of all leases, which promise nothing, where it is missing."""
    entry, bucket = f"$KV.{BUCKET}.{key}", f"KV_{BUCKET}"
    verbs = ["INFO", f"STREAM.INFO.{bucket}", f"STREAM.CREATE.{bucket}", f"STREAM.MSG.GET.{bucket}"]
    return [entry, *(f"{API}.{verb}" for verb in verbs)]


def may_subscribe(name: str, grant: Grant, *, cluster: str) -> list[str]:
    """The subjects a user may listen to: answers to itself, what is condemned, and for an agent what it is asked."""
    host = "*" if grant.host is None else host_token(grant.host)
    questions = [f"tenure-data.{cluster}.logs.{host}"] if grant.answers_gateway else []
    questions += [f"tenure-data.{cluster}.forecast"] if grant.forecasts else []
    return [f"{inbox_of(name)}.>", Subjects(cluster).every_condemned, *questions]


def render(keys: Mapping[str, str], *, cluster: str, hosts: Sequence[HostId] = (), sites: Sequence[Site] = ()) -> str:
    """The `authorization` block of the log's servers. `keys`: by user its public key, or `$NAME` of a variable."""
    entries = [(name, {} if grant is None else {name: grant}) for name, grant in users(hosts).items()]
    entries += [(site.user, site.agents) for site in sites]
    return _block(keys, entries, cluster=cluster, at_site={site.user for site in sites})


def render_site(keys: Mapping[str, str], site: Site, *, cluster: str) -> str:
    """The same for the server of a site."""
    entries = [(name, {name: grant}) for name, grant in site.agents.items()]
    return _block(keys, entries, cluster=cluster, at_site=site.agents.keys())


def _block(
    keys: Mapping[str, str],
    entries: Sequence[tuple[str, Mapping[str, Grant]]],
    *,
    cluster: str,
    at_site: Collection[str],
) -> str:
    """`entries`: each user, and as whom it may speak, as nobody: it may do all. `at_site`: who asks from there."""
    lines = ["authorization {", "  users: ["]
    for user, spoken in entries:
        lines.append(f"    # {user}")
        if not spoken:
            lines.append(f"    {{ nkey: {keys[user]} }}")
            continue
        heard = (each for name, grant in spoken.items() for each in may_subscribe(name, grant, cluster=cluster))
        said = [each for grant in spoken.values() for each in may_publish(grant, cluster=cluster)]
        if user in at_site:
            said = [each.replace(API, DOMAIN_API, 1) if each.startswith(API) else each for each in said]
        if user not in spoken:  # what is answered is not known to the log's servers of a connection of servers
            said.append(f"{inbox_of(GATEWAY)}.>")
        lines.append(f"    {{ nkey: {keys[user]}, permissions: {{")
        lines.append(f"        subscribe: [{_listed(list(dict.fromkeys(heard)))}]")
        if any(grant.answers_gateway or grant.forecasts for grant in spoken.values()):
            lines.append("        allow_responses: true")
        lines.append("        publish: [")
        lines += [f"          {_quoted(subject)}" for subject in dict.fromkeys(said)]
        lines.append("        ] } }")
    return "\n".join([*lines, "  ]", "}", ""])


def make_keys(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """A seed for each user in `folder` (0700, the files 0600), made where there is none; returns the public keys.

    Raises `Refusal`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        return {name: _public_key(seed_file(folder, name)) for name in names}
    except OSError as error:
        raise Refusal(
            field=str(folder), problem=f"keys cannot be kept there: {error.strerror}", fix="make it yours"
        ) from error


def seed_file(folder: Path, name: str) -> Path:
    """Where the seed of a user lies."""
    return folder / f"nats-{name}.seed"


def _public_key(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        path.chmod(0o600)
    else:
        with os.fdopen(descriptor, "wb") as file:
            file.write(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER) + b"\n")
    try:
        return str(nkeys.from_seed(bytearray(path.read_bytes().strip())).public_key.decode())
    except (nkeys.NkeysError, ValueError) as error:
        raise Refusal(field=str(path), problem="holds no seed", fix="remove it: a new one is made") from error


def _listed(subjects: Sequence[str]) -> str:
    return ", ".join(_quoted(subject) for subject in subjects)


def _quoted(subject: str) -> str:
    assert '"' not in subject and "\\" not in subject, "words of subjects hold neither"
    return f'"{subject}"'


def _hosts(text: str, *, field: str) -> list[HostId]:
    return [HostId(check_word(host, field=field)) for host in text.split(",") if host]


def _site(text: str) -> Site:
    name, equals, named = text.partition("=")
    hosts = _hosts(named, field="--site")
    if not equals or not hosts:
        raise Refusal(field="--site", problem=f"{text[:60]!r} names no hosts", fix="write --site NAME=HOST,HOST")
    return Site(name=check_word(name, field="--site"), hosts=tuple(hosts))


def _check_sites(sites: Sequence[Site], hosts: Sequence[HostId]) -> None:
    for site in sites:
        strange = sorted(set(site.hosts) - set(hosts))
        if strange:
            fix = "add it to --hosts: roles are told of all hosts there"
            raise Refusal(field="--site", problem=f"{strange[0]} of {site.name} is not among the hosts", fix=fix)


def main() -> int:
    """The command. Exit status 1 with one line on stderr when the keys cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tenure.log.permissions", description="Users of the log's servers.")
    parser.add_argument("--cluster", required=True, help="name of the log")
    parser.add_argument("--hosts", default="", help="names of the real hosts, separated by commas; none: virtual ones")
    parser.add_argument("--keys", type=Path, required=True, help="folder of the seeds; each goes to its role alone")
    parser.add_argument("--site", action="append", default=[], metavar="NAME=HOST,HOST", help="hosts behind a leaf")
    parser.add_argument("--for-site", default="", metavar="NAME", help="print the users of this site's server")
    given = parser.parse_args()
    try:
        hosts, sites = _hosts(given.hosts, field="--hosts"), [_site(text) for text in given.site]
        if given.for_site:
            site = next((each for each in sites if each.name == given.for_site), None)
            if site is None:
                raise Refusal(field="--for-site", problem=f"{given.for_site!r} is no --site", fix="name one of them")
            print(render_site(make_keys(given.keys, list(site.agents)), site, cluster=given.cluster), end="")
            return 0
        _check_sites(sites, hosts)
        keys = make_keys(given.keys, [*users(hosts), *(site.user for site in sites)])
        print(render(keys, cluster=given.cluster, hosts=hosts, sites=sites), end="")
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
