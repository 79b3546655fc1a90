"""Outages of hosts: what is read, and every bad row with its file, line, column and the fix."""

from pathlib import Path

import pytest

from simulator.faults import Fault, read_faults
from tenure.domain.refusal import Refusal
from tenure.runtime.cluster_file import parse_hosts

HOSTS = parse_hosts("2x8")
HEADER = "host,down_s,up_s,kind"


def faults(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "faults.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return path


def refused(path: Path) -> str:
    with pytest.raises(Refusal) as caught:
        read_faults(path, hosts=HOSTS)
    return str(caught.value).removeprefix(f"{path}:")


def test_outages_in_order_of_time_then_host(tmp_path: Path) -> None:
    path = faults(tmp_path, "h001,20.5,,psu", "h001,10,20,xid79", "h000,10,11,")
    assert read_faults(path, hosts=HOSTS) == (
        Fault(host="h000", down_at=10_000, up_at=11_000, kind=""),
        Fault(host="h001", down_at=10_000, up_at=20_000, kind="xid79"),
        Fault(host="h001", down_at=20_500, up_at=None, kind="psu"),
    )


def test_columns_stand_in_any_order(tmp_path: Path) -> None:
    path = faults(tmp_path, "nvlink,5,h000,4", header="kind,up_s,host,down_s")
    assert read_faults(path, hosts=HOSTS) == (Fault(host="h000", down_at=4_000, up_at=5_000, kind="nvlink"),)


def test_none_at_all(tmp_path: Path) -> None:
    assert read_faults(faults(tmp_path), hosts=HOSTS) == ()


def test_up_at_the_instant_of_the_next_down(tmp_path: Path) -> None:
    assert len(read_faults(faults(tmp_path, "h000,1,2,a", "h000,2,3,b"), hosts=HOSTS)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h002,1,2,x", "column host: the cluster has no host 'h002'; did you mean h00"),
        (",1,2,x", "column host: empty; known: h000, h001"),
        ("h000,2,1,x", "column up_s: '1' is not after down_s, '2'; write when it was repaired, or nothing for never"),
        ("h000,2,2,x", "column up_s: '2' is not after down_s, '2'"),
        ("h000,-1,2,x", "column down_s: '-1' is negative"),
        ("h000,,2,x", "column down_s: empty"),
        ("h000,nan,2,x", "column down_s: 'nan' is not a number"),
        ("h000,1,never,x", "column up_s: 'never' is not a number"),
        ("h000,1,2,a\x07", "column kind: 'a\\x07' holds control characters"),
        ("h001,15,18,x", "column down_s: h001 is still down: its outage of line 2 ends at 20; join the two rows"),
        ("h000,35,36,x", "column down_s: h000 is still down: its outage of line 3 never ends"),
    ],
)
def test_a_bad_row_is_named_with_line_and_column(tmp_path: Path, line: str, said: str) -> None:
    assert refused(faults(tmp_path, "h001,10,20,x", "h000,30,,x", line)).startswith(f"4, {said}")


def test_an_outage_that_begins_in_an_earlier_row(tmp_path: Path) -> None:
    """The row at fault is the later outage, wherever it stands."""
    said = refused(faults(tmp_path, "h000,15,18,x", "h000,10,20,x"))
    assert said.startswith("2, column down_s: h000 is still down: its outage of line 3 ends at 20")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty; begin with a line of columns: host,down_s,up_s,kind"),
        ("host,down_s,up_s\n", "1: no column kind"),
        ("host,down_s,up_s,knd\n", "1: unknown column 'knd'; did you mean kind?"),
        (f"{HEADER}\nh000,1,2\n", "2: 3 fields, the first line names 4 columns"),
    ],
)
def test_a_file_that_is_no_list_of_outages(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "faults.csv"
    path.write_text(text)
    assert refused(path).lstrip(": ").startswith(said)
