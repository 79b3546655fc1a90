"""SWF: comments, sentinels, parts of a job, records closed late, bulk submissions."""

import pytest

from tenure.domain.refusal import Refusal
from tests.unit.simulator.traces.importing import by_id, count, imported, noted

ODD = "; MaxProcs: 8192\n;\n\n"


def line(job, submit, run, *, given=8, asked=8, limit=3600, status=1, user=1, group=1, queue=1):
    return f"  {job} {submit} 10 {run} {given} -1 -1 {asked} {limit} -1 {status} {user} {group} -1 {queue} -1 -1 -1\n"


def test_every_anomaly_of_the_source(tmp_path):
    text = ODD + "".join(
        [
            line(1, 100, 600, asked=16, given=16),
            line(2, 50, 60),
            line(3, 200, 0, status=5),  # cancelled in the queue
            line(4, 200, 0),
            line(5, 200, -1),
            line(6, 200, 7100),  # within the hour past its limit
            line(7, 200, 999_999, status=5),  # closed late
            line(8, 200, 60, asked=-1, limit=-1),
            line(9, 200, 60, given=9, asked=72),
            line(10, 200, 60, given=-1, asked=-1),
            line(11, 200, 60, status=2),
            line(12, 200, 60, group=-1, user=7),
            line(13, 200, 60, group=-1, user=-1),
            line(-1, 200, 60, user=3),
            line(15, "soon", 60),
            "16 200 10\n",
            line(17, -1, 60),
        ]
    )
    result = imported(tmp_path, "swf", text)
    rows = by_id(result)
    assert [row.submit_s for row in result.rows] == [0, 50] + 8 * [150]
    assert (rows["000001"].replicas, rows["000001"].gpus_per_replica) == (2, 8)
    assert (rows["000004"].runtime_s, rows["000006"].runtime_s, rows["000007"].runtime_s) == (1, 7100, 3600)
    assert (rows["000008"].gpus, rows["000009"].gpus) == (8, 72)
    assert (rows["000012"].budget, rows["000012"].user) == ("u7", "u7")
    assert (rows["000013"].budget, rows["000013"].user) == ("unknown", "unknown")
    assert rows["line-000017"].user == "u3"
    assert count(result, "dropped", "cancelled with no run time") == 1
    assert count(result, "dropped", "never started: no run time") == 1
    assert count(result, "dropped", "no processor") == 1
    assert count(result, "dropped", "part of a job") == 1
    assert count(result, "dropped", "submit time is not a number") == 1
    assert count(result, "dropped", "not 18 fields") == 1
    assert count(result, "dropped", "no submit time") == 1
    assert count(result, "clipped", "past its time limit") == 1
    assert count(result, "changed", "no requested processors") == 1
    assert count(result, "kept", "no limit is known") == 1
    assert count(result, "kept", "other than the requested") == 1
    assert result.notes.rows_read == 17 == len(result.rows) + result.notes.dropped


def test_bulk_submissions_are_kept(tmp_path):
    rows = [line(number, 100, 60 + number) for number in range(1, 6)] + [line(6, 100, 60, user=2), line(7, 101, 60)]
    result = imported(tmp_path, "swf", ODD + "".join(rows))
    assert len(result.rows) == 7
    assert noted(result) == {
        ("kept", "the user, size, limit and second of the row before: taken as a bulk submission"): 4
    }


def test_a_file_of_another_format_is_refused(tmp_path):
    with pytest.raises(Refusal, match=r"swf.txt:1: 1 fields, 18 are expected"):
        imported(tmp_path, "swf", "timestamp,duration,num_gpus\n1,2,3\n")
    with pytest.raises(Refusal, match="no job is left: no rows"):
        imported(tmp_path, "swf", "; nothing but comments\n")
