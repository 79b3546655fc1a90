"""Recorded failures as faults.csv: every oddity of each record, the scaling, and what is refused."""

import lzma
from pathlib import Path

import pytest

from simulator.faults import read_faults
from simulator.traces.outages.scale import FaultRow, Scaled, Scaling, Source, added, chunks, import_outages
from tenure.domain.refusal import Refusal
from tenure.runtime.cluster_file import parse_hosts

TITAN = "SN,location,insert,remove,duration,out,event\n"
LANL = (
    "System,nodes,nodenumz,Prob Started,Prob Fixed,Down Time,"
    "Facilities,Hardware,Human Error,Network,Undetermined,Software\n"
)
GRID = (
    "# event_id component_id node_id platform_id node_name event_type "
    "event_start_time event_stop_time event_end_reason\n"
)
DAY_S = 86_400


def scaled(folder: Path, source: Source, text: str, *, hosts: str = "1x2", **options: object) -> Scaled:
    path = folder / "record.xz"
    path.write_bytes(lzma.compress(text.encode()))
    scaling = Scaling(hosts=parse_hosts(hosts), **{"days": 1.0, **options})  # type: ignore[arg-type]  # each test's own
    return import_outages(path, source=source, scaling=scaling)


def told(result: Scaled) -> dict[str, int]:
    return {f"{note.action}: {note.why}": note.count for note in result.notes.listing()}


def rows(result: Scaled) -> list[tuple[str, int, int | None, str]]:
    return [(row.host, row.down_s, row.up_s, row.kind) for row in result.rows]


def test_titan(tmp_path: Path) -> None:
    stays = [
        "a,c0,2016-01-01 00:00:00,2016-01-01 00:00:00,1,TRUE,",
        "b,c0,,2016-01-01 10:00:00,,,DBE",
        "c,c1,2016-01-01 00:00:00,2016-01-01 11:00:00,1,TRUE,OTB",
        "d,c1,2016-01-01 00:00:00,2016-01-01 23:00:00,1,TRUE,OTB",
        "e,c1,2016-01-01 00:00:00,yesterday,1,TRUE,OTB",
        "f,c1,2016-01-01 00:00:00,2016-01-01 01:00:00,1,TRUE,FIRE",
        "g,c1,2016-01-01 00:00:00,2016-01-03 00:00:00,1,TRUE,DBE",
        "h,c1,short",
    ]
    result = scaled(tmp_path, Source.TITAN, TITAN + "\n".join(stays), repair_s=7_200, warned=("otb",))
    assert rows(result) == [("h000", 36_000, 36_000 + 3 * 3_600, "dbe"), ("h000", 82_800, 90_000, "drain-otb")]
    assert told(result) == {
        "dropped: no fault: the GPU was moved, or was there at the end": 1,
        "dropped: remove is not a time": 1,
        "dropped: event is neither DBE nor OTB": 1,
        "dropped: fewer cells than the header": 1,
        "dropped: after the window": 1,
        "dropped: its host was down: part of that outage": 1,
        "changed: its end is not told: as long as --repair": 3,
        "kept: no time of insertion: the fault is dated by the removal anyway": 1,
    }


def test_lanl(tmp_path: Path) -> None:
    outages = [
        "9,2,0,1/1/2004 0:00,1/1/2004 0:00,0,,,,,,",
        "9,2,0,1/1/2004 1:00,1/1/2004 2:00,61,,Memory,,,,Kernel",
        "9,2,1,1/1/2004 3:00,1/1/2004 4:00,120,,,Human,,,",
        "9,2,1,1/1/2004 6:00,1/1/2004 5:00,60,,,,,,",
        "9,2,1,Mar-02,1/1/2004 5:00,60,,,,,,",
        "9,2,,1/1/2004 6:00,1/1/2004 7:00,60,,,,,,",
        "9,2,1,1/9/2004 6:00,1/9/2004 7:00,60,,,,,,",
    ]
    result = scaled(tmp_path, Source.LANL, LANL + "\n".join(outages), hosts="2x8", days=2.0)
    assert sorted(row.down_s for row in result.rows) == [3_600, 3 * 3_600]
    assert {row.kind for row in result.rows} == {"hardware", "human-error"}
    assert result.places == result.drawn == 2
    assert told(result) == {
        "dropped: after the window": 1,
        "dropped: Prob Started is not a time": 1,
        "dropped: fixed before it started": 1,
        "dropped: fixed when it started: an outage of no time": 1,
        "dropped: no system, or no number of its host": 1,
        "changed: Down Time differs from the two times: the times count": 1,
    }


def test_grid5000(tmp_path: Path) -> None:
    intervals = [f"0 0 0 5 n0 {kind} {start} {stop} NULL\n" for kind, start, stop in (
        (1, 0, 100), (0, 100, 400), (0, 500, 500), (0, 600, 590), (2, 600, 700), (0, "x", 700), (0, 90_000, 200_000),
    )]  # fmt: skip
    result = scaled(tmp_path, Source.GRID5000, GRID + "".join(intervals), hosts="1x8", since_s=200)
    assert rows(result) == [("h000", 0, 200, "down")]
    assert told(result) == {
        "dropped: after the window": 1,
        "dropped: an outage of no time": 1,
        "dropped: event_start_time is not a number": 1,
        "dropped: event_type is neither 0 nor 1": 1,
        "dropped: no outage: the host was up": 1,
        "dropped: stops before it starts": 1,
        "clipped: began before the window: cut to the window's beginning": 1,
    }


def test_more_often_is_sooner_and_as_long(tmp_path: Path) -> None:
    text = GRID + f"0 0 0 5 n0 0 {DAY_S} {DAY_S + 60} NULL\n0 0 0 5 n0 1 0 {9 * DAY_S} NULL\n"
    result = scaled(tmp_path, Source.GRID5000, text, hosts="1x8", times=4.0)
    assert rows(result) == [("h000", DAY_S // 4, DAY_S // 4 + 60, "down")]


def test_the_seed_draws_the_places(tmp_path: Path) -> None:
    lines = [
        f"0 0 0 5 n{node} 0 {node * 60} {node * 60 + 30} NULL\n0 0 0 5 n{node} 1 0 {DAY_S} NULL\n" for node in range(60)
    ]
    one, same, other = (
        scaled(tmp_path, Source.GRID5000, GRID + "".join(lines), hosts="8x8", seed=seed) for seed in (1, 1, 2)
    )
    assert one.rows == same.rows != other.rows
    assert len(one.rows) == len(other.rows) == 8


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        (Source.TITAN, "SN,location,remove,event\n", "record.xz:1: no column insert in the header"),
        (Source.LANL, TITAN, "record.xz:1: no column System"),
        (Source.GRID5000, "0 0 0 5 n0 0 1 2 NULL\n", "record.xz:1: no line before it with # event_id"),
        (Source.TITAN, TITAN, "record.xz: no outage is left: no rows"),
        (Source.GRID5000, GRID + "0 0 0 5 n0 0 0 99999 NULL\n", "--cluster: 2 hosts, and the record has 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, source: Source, text: str, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        scaled(tmp_path, source, text, hosts="2x8")
    assert message in str(caught.value)


def test_a_broken_archive_is_said(tmp_path: Path) -> None:
    path = tmp_path / "record.xz"
    path.write_bytes(lzma.compress(TITAN.encode())[:20] + b"no archive")
    with pytest.raises(Refusal, match=r"record\.xz: broken xz"):
        import_outages(path, source=Source.TITAN, scaling=Scaling(hosts=parse_hosts("1x8")))


def test_two_records_are_one_file_that_is_read(tmp_path: Path) -> None:
    hosts, path = parse_hosts("2x8"), tmp_path / "faults.csv"
    path.write_text("host,down_s,up_s,kind\nh000,10,20,psu\nh001,50,,fan\n")
    mine = [
        FaultRow(host="h000", down_s=15, up_s=30, kind="dbe"),
        FaultRow(host="h000", down_s=40, up_s=45, kind="otb"),
        FaultRow(host="h001", down_s=60, up_s=70, kind="dbe"),
    ]
    rows, joined = added(mine, read_faults(path, hosts=hosts))
    assert [(row.host, row.down_s, row.up_s, row.kind) for row in rows] == [
        ("h000", 10, 30, "psu"),
        ("h000", 40, 45, "otb"),
        ("h001", 50, None, "fan"),
    ]
    assert joined == 2
    path.write_bytes(b"".join(chunks(rows)))
    assert len(read_faults(path, hosts=hosts)) == 3


@pytest.mark.parametrize(
    ("source", "file", "since_s", "read", "places"),
    [
        (Source.TITAN, "titan-gpu/gc_full.csv.gz", 1_471_219_200, 37_343, 18_687),
        (Source.LANL, "lanl-nodes/LA-UR-05-7318-failure-data-1996-2005.csv.xz", 1_078_099_200, 23_739, 4_917),
        (Source.GRID5000, "grid5000/event_trace.tab.xz", 1_122_854_400, 588_463, 648),
    ],
)
def test_the_records_beside_the_project(
    shared: Path, tmp_path: Path, source: Source, file: str, since_s: int, read: int, places: int
) -> None:
    path = shared / "traces" / "failures" / file
    if not path.is_file():
        pytest.skip(f"needs shared/traces/failures/{file} beside the project")
    hosts = parse_hosts("128x8")
    result = import_outages(path, source=source, scaling=Scaling(hosts=hosts, since_s=since_s))
    assert result.notes.rows_read == read == len(result.rows) + result.notes.dropped
    assert result.places == places
    assert told(result).get("kept: no time of insertion: the fault is dated by the removal anyway", 1_158) == 1_158
    assert told(result).get("changed: Down Time differs from the two times: the times count", 24) == 24
    (tmp_path / "faults.csv").write_bytes(b"".join(chunks(result.rows)))
    assert len(read_faults(tmp_path / "faults.csv", hosts=hosts)) == len(result.rows) > 0
