"""Whatever a file from people or other systems holds: it is read, or refused in one line. `make fuzz` tries for longer.

Each sample is changed: cut, words of it replaced, lines doubled and dropped, bytes put in. So most of them still mean
something, and get beyond the first check.
"""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.faults import read_faults
from simulator.knobs import parse_knobs
from simulator.past.lines import facts_of
from simulator.traces.contract import parse_rules
from simulator.traces.outages.scale import Scaling, Source, chunks, import_outages
from simulator.workload import read_trace
from tenure.cli.slurm_accounts import budgets_yaml, load_accounts
from tenure.domain.refusal import Refusal
from tenure.domain.tree_check import check_tree
from tenure.runtime.budgets_file import load_budgets
from tenure.runtime.cluster_file import load_cluster, parse_hosts
from tenure.runtime.settings.given import load_settings

HOSTS = parse_hosts("2x8")
TREE = check_tree({"budgets": {"a": {"share": 50, "children": {"x": {"share": 40}}}, "b": {"share": 50}}})
Read = Callable[[Path], object]

TITAN = """\
SN,location,insert,remove,duration,out,event
a,c0,2016-01-01 00:00:00,2016-01-01 00:00:00,1,TRUE,
c,c1,2016-01-01 00:00:00,2016-01-01 11:00:00,1,TRUE,OTB
g,c1,2016-01-01 00:00:00,2016-01-03 00:00:00,1,TRUE,DBE
"""
LANL = """\
System,nodes,nodenumz,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software
9,2,0,1/1/2004 1:00,1/1/2004 2:00,61,,Memory,,,,Kernel
9,2,1,1/1/2004 3:00,1/1/2004 4:00,120,,,Human,,,
9,2,1,1/9/2004 6:00,1/9/2004 7:00,60,,,,,,
"""
GRID = """\
# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time event_end_reason
0 0 1 1 n1.lyon 1 1000 90000 0
1 0 1 1 n1.lyon 0 90000 95000 0
2 0 2 1 n2.lyon 0 1000 1000000 0
"""
TRACE = """\
job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind
j1,0,a/x,ana,1,8,3600,7200,true,0,train
j2,5.5,b,bo,2,4,0,60,false,1,debug
"""
FAULTS = "host,down_s,up_s,kind\nh000,86400,90000,xid79\nh001,200000,,psu\n"
EXPORT = """\
{"t":0,"type":"origin","epoch_ms":1790000000000}
{"t":0,"type":"budget_tree","shares":{"a":0.5,"a/x":0.4},"users_equal":["a/x"]}
{"t":0,"type":"policy_changed","by":"ana","comment":"","knobs":{"lookback":[604800,86400],"rates.B200":[1,2.5]}}
{"t":0,"type":"host","host":"h000","gpus":8,"gpu_type":"H100","block":"b0"}
{"t":0.5,"type":"capacity","host":"h000","gpus":8,"gpu_type":"H100"}
{"t":1,"type":"job_submitted","job":"j","budget":"a/x","user":"ana","replicas":2,"gpus_per_replica":1,\
"min_runtime_s":60,"resumable":true,"priority":0,"gpu_type":null,"grace_s":5,"topology":"one-block"}
{"t":1,"type":"run_assigned","job":"j","run":"j.1","hosts":{"h000":[0,1]},"charged":true,\
"reason":{"rule":"P4","reason":"start_in_order","numbers":{"rank":1}}}
{"t":2,"type":"run_started","job":"j","run":"j.1","hosts":{"h000":[0,1]},"charged":true,"protected_until":62}
{"t":90,"type":"run_ended","job":"j","run":"j.1","cause":"preempted","by":"k","refunded_gpu_s":0,"charged_gpu_s":176,\
"checkpoint":80,"reason":{"rule":"P10","reason":"disrupt_lower_ratio","numbers":{}}}
{"t":90,"type":"job_requeued","job":"j","run":"j.1","resume_count":1,\
"reason":{"rule":"P10","reason":"disrupt_lower_ratio","numbers":{}}}
"""
CLUSTER = """\
clusters:
  - {name: h100, hosts: 4, gpus_per_host: 8, gpu_type: H100, hosts_per_block: 2}
  - name: lab
    hosts: [{name: a1, gpus: 4, gpu_type: A100, block: row1/rack1, address: 10.0.0.1}]
"""
BUDGETS = "budgets: {science: {share: 60, managers: [ana], children: {chem: {share: 45}}}, art: {share: 40}}\n"
ACCOUNTS = """\
Account|ParentName|User|Share
root|||1
language|root||60
language||fay|1
alignment|language||2
alignment||cy|parent
"""
POLICY = "policy: {lookback: 7d, ratio_margin: 0.02, reservation_depth: 32, automation_share: 0.1}\n"
SIGNAL_OPTIONS = """\
signals:
  kernel: 10s
  checks: [{name: disk, command: [/bin/true], every: 60s, limit: 5s}]
"""
REPAIR_OPTIONS = "repair: {command: [/opt/repair], attempts: 2, test: true}\n"
CONNECTIONS = """\
cluster: east
nats: {url: tls://n1:4222, insecure: false}
clickhouse: {url: http://c:8123}
agent: {hosts: 2x2, memory_per_gpu: 120GiB, pids_max: 4096, provider: virtual}
engine: {fsync: true, drain_seconds: 0.5}
"""
IDENTITY_OPTIONS = "identity: {issuer: https://id.example.org, audience: tenure, admins: [ana]}\n"


def read_settings(path: Path) -> object:
    """As `tenure config check` and every role read it."""
    settings = load_settings(role="", config=path, environment={})
    return [settings.value(name) for name in settings.given]


def read_outages(source: Source) -> Read:
    def read(path: Path) -> object:
        return b"".join(
            chunks(import_outages(path, source=source, scaling=Scaling(hosts=parse_hosts("1x1"), days=1.0)).rows)
        )

    return read


READERS: dict[str, tuple[Read, str]] = {
    "titan": (read_outages(Source.TITAN), TITAN),
    "lanl": (read_outages(Source.LANL), LANL),
    "grid5000": (read_outages(Source.GRID5000), GRID),
    "trace": (lambda path: read_trace(path, tree=TREE), TRACE),
    "trace, bad rows left out": (lambda path: read_trace(path, tree=TREE, skip_bad=True), TRACE),
    "faults": (lambda path: read_faults(path, hosts=HOSTS), FAULTS),
    "export": (facts_of, EXPORT),
    "cluster": (load_cluster, CLUSTER),
    "budgets": (load_budgets, BUDGETS),
    "accounts": (lambda path: budgets_yaml(load_accounts(path)), ACCOUNTS),
    "policy": (read_settings, POLICY),
    "signals": (read_settings, SIGNAL_OPTIONS),
    "repair": (read_settings, REPAIR_OPTIONS),
    "identity": (read_settings, IDENTITY_OPTIONS),
    "connections": (read_settings, CONNECTIONS),
}
WORDS = (
    "", "-1", "0", "1", "0.5", "1e300", "-1e300", "1e999", ".nan", "nan", "inf", ".inf", "9" * 400, "0x10", "1_000",
    "true", "null", "~", "[]", "{}", "[[]]", "*a", "&a [*a]", "!!python/object:os.system", "<<: *a", "? x",
    "9999-12-31 23:59:59", "0000-00-00", "7d", "-7d", "1h1h", "\x00", "\x1b[2J", "\u202e", "\ufeff", "a/b", "../..",
    '"', "'", ",", ":", "#", "\t", "a" * 5_000, "\u0661", "\u0967", "h000",
)  # fmt: skip
TOKEN = re.compile(r"[^\s,:{}\[\]|]+")


@st.composite
def changed(draw: st.DrawFn, sample: str) -> bytes:
    """The sample with up to four things wrong with it."""
    text = sample
    for _ in range(draw(st.integers(0, 4))):
        words = list(TOKEN.finditer(text))
        match draw(st.sampled_from(("word", "word", "word", "cut", "insert", "line", "drop"))):
            case "word" if words:
                word = draw(st.sampled_from(words))
                text = text[: word.start()] + draw(st.sampled_from(WORDS) | st.text(max_size=8)) + text[word.end() :]
            case "cut":
                text = text[: draw(st.integers(0, len(text)))]
            case "insert":
                at = draw(st.integers(0, len(text)))
                text = text[:at] + draw(st.sampled_from(WORDS) | st.text(max_size=8)) + text[at:]
            case "line" | "drop" as what:
                lines = text.splitlines(keepends=True)
                if lines:
                    at = draw(st.integers(0, len(lines) - 1))
                    lines[at : at + 1] = [lines[at]] * 2 if what == "line" else []
                    text = "".join(lines)
    data = text.encode("utf-8", errors="surrogatepass")
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.just(b"") | st.just(b"") | st.binary(max_size=6)) + data[at:]


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    read, sample = READERS[name]
    content = data.draw(changed(sample))
    check(read, tmp_path_factory.getbasetemp() / "given", content)


def check(read: Read, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        read(path)
    except Refusal as refusal:
        assert "\n" not in str(refusal), str(refusal)
        assert len(str(refusal)) < 2_000, str(refusal)


@pytest.mark.parametrize("name", READERS)
def test_each_sample_is_read(tmp_path: Path, name: str) -> None:
    """Else nothing beyond the first check would ever be tried."""
    read, sample = READERS[name]
    path = tmp_path / "given"
    path.write_text(sample)
    read(path)


@pytest.mark.parametrize("name", ["titan", "lanl", "grid5000", "trace", "faults"])
@given(noise=st.binary(max_size=200))
@example(noise=b"\x1f\x8b")
@example(noise=b"\xfd7zXZ\x00")
@example(noise=gzip.compress(b"x" * 100)[:-4])
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, name: str, noise: bytes) -> None:
    for ending in ("", ".gz", ".xz"):
        check(READERS[name][0], tmp_path_factory.getbasetemp() / f"given{ending}", noise)


@given(
    st.lists(
        st.text(max_size=20) | st.sampled_from(["lookback=", "lookback=7d", "grace_max=-1s", "restart_overhead=1e9d"])
    )
)
def test_any_setting_is_taken_or_refused(settings: list[str]) -> None:
    for parse in (parse_knobs, parse_rules):
        try:
            parse(settings)
        except Refusal as refusal:
            assert "\n" not in str(refusal)


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{1,12}x[0-9]{1,12}"))
def test_any_number_of_hosts_is_taken_or_refused(text: str) -> None:
    try:
        parse_hosts(text)
    except Refusal as refusal:
        assert "\n" not in str(refusal)
