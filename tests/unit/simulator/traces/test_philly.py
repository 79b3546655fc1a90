"""Philly: wall times out of order across the end of daylight saving, no ids, bursts, odd sizes."""

import gzip

from tests.unit.simulator.traces.importing import by_id, count, imported, noted

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_rows_out_of_order_are_put_in_order_from_zero(tmp_path):
    text = HEADER + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n"
    result = imported(tmp_path, "philly", text)
    assert [(row.submit_s, row.job_id, row.budget, row.runtime_s) for row in result.rows] == [
        (0, "line-000003", "vc-6214e9", 2951),
        (48 * 60 + 52, "line-000002", "vc-11cb48", 66),
    ]
    assert noted(result) == {}


def test_daylight_saving_ends_in_between(tmp_path):
    """01:30 is there twice and taken as the first; from there to 02:30 are two hours, not one."""
    times = ["2017-11-05 00:30:00", "2017-11-05 01:30:00", "2017-11-05 01:45:10", "2017-11-05 02:30:00"]
    result = imported(tmp_path, "philly", HEADER + "".join(f"{time},60.0,1,60.0,vc\n" for time in times))
    assert [row.submit_s for row in result.rows] == [0, 3600, 3600 + 910, 3 * 3600]
    assert count(result, "changed", "clock repeats") == 2


def test_daylight_saving_begins_in_between(tmp_path):
    times = ["2017-03-12 01:59:59", "2017-03-12 02:30:00", "2017-03-12 03:00:00"]
    result = imported(tmp_path, "philly", HEADER + "".join(f"{time},60.0,1,60.0,vc\n" for time in times))
    assert [row.submit_s for row in result.rows] == [0, 1, 30 * 60 + 1]
    assert count(result, "changed", "clock skips") == 1


def test_equal_rows_are_a_burst(tmp_path):
    row = "2017-10-09 07:01:55,66.0,1,66.0,vc\n"
    result = imported(tmp_path, "philly", HEADER + 3 * row)
    assert [item.job_id for item in result.rows] == ["line-000002", "line-000003", "line-000004"]
    assert count(result, "kept", "burst") == 2


def test_cells_that_say_nothing_or_nonsense_are_dropped_and_told(tmp_path):
    rows = [
        "2017-10-09 07:00:00,NA,1,NA,vc",  # never started
        "2017-10-09 07:00:00,-1,1,-1,vc",
        ",60.0,1,60.0,vc",
        "yesterday,60.0,1,60.0,vc",
        "2017-10-09 25:00:00,60.0,1,60.0,vc",
        "2017-10-09 07:00:00,60.0,0,0.0,vc",
        "2017-10-09 07:00:00,60.0,,0.0,vc",
        "2017-10-09 07:00:00,60.0,-4,0.0,vc",
        "2017-10-09 07:00:00,inf,1,0.0,vc",
        "2017-10-09 07:00:00,60.0,many,0.0,vc",
        "2017-10-09 07:00:00,60.0,1",
        "2017-10-09 07:00:00,60.0,1,60.0,vc,more",
        '2017-10-09 07:00:00,60.0,1,60.0,"vc',  # a broken quote spoils no other row
        "",
        "2017-10-09 07:00:00,0.0,1,0.0,vc",
        "2017-10-09 07:00:00,60.0,0.5,30.0,vc",
        "2017-10-09 07:00:00,60.0,1.5,90.0,",
    ]
    result = imported(tmp_path, "philly", HEADER + "\r\n".join(rows) + "\r\n")
    assert count(result, "dropped", "never started") == 2
    assert count(result, "dropped", "no submit time") == 1
    assert count(result, "dropped", "timestamp is not a time") == 2
    assert count(result, "dropped", "asks for no GPU") == 1
    assert count(result, "dropped", "no number of GPUs") == 1
    assert count(result, "dropped", "num_gpus is negative") == 1
    assert count(result, "dropped", "duration is out of range") == 1
    assert count(result, "dropped", "num_gpus is not a number") == 1
    assert count(result, "dropped", "fewer cells") == 1
    assert count(result, "dropped", "more cells") == 1
    assert count(result, "changed", "ran for no time") == 1
    assert count(result, "changed", "part of a GPU") == 2
    assert [(row.gpus, row.runtime_s, row.budget) for row in result.rows] == [
        (1, 60, "vc-vc"),
        (1, 1, "vc-vc"),
        (1, 60, "vc-vc"),
        (2, 60, "unknown"),
    ]
    assert result.notes.rows_read == 16 == len(result.rows) + result.notes.dropped


def test_sizes_that_are_no_multiple_of_a_host(tmp_path):
    sizes = (1, 8, 12, 13, 16, 24)
    rows = "".join(f"2017-10-09 07:00:0{second},60.0,{gpus},0.0,vc\n" for second, gpus in enumerate(sizes))
    result = imported(tmp_path, "philly", HEADER + rows)
    shapes = [(row.replicas, row.gpus_per_replica) for row in result.rows]
    assert shapes == [(1, 1), (1, 8), (2, 6), (13, 1), (2, 8), (3, 8)]
    assert count(result, "changed", "not a multiple") == 2


def test_larger_than_the_cluster_is_as_large_as_its_whole_hosts(tmp_path):
    row = "2017-10-09 07:00:00,60.0,128,0.0,vc\n"
    result = imported(tmp_path, "philly", HEADER + row, most_gpus=60)
    assert [(item.replicas, item.gpus_per_replica) for item in result.rows] == [(7, 8)]
    assert count(result, "clipped", "--max-gpus") == 1
    assert result.gpu_s == {"vc-vc": 56 * 60}


def test_gzip_a_mark_at_the_start_and_columns_in_another_order(tmp_path):
    text = "\ufeffcluster,num_gpus,Timestamp,duration\nvc,2,2017-10-09T07:00:00,5.4\n"
    row = by_id(imported(tmp_path, "philly", gzip.compress(text.encode())))["line-000002"]
    assert (row.gpus, row.runtime_s, row.user) == (2, 5, "unknown")


def test_a_window_of_it(tmp_path):
    rows = "".join(f"2017-10-{day:02},60.0,1,60.0,vc\n" for day in range(1, 8))
    result = imported(tmp_path, "philly", HEADER + rows, since_s=2 * 86_400, until_s=5 * 86_400)
    assert [row.submit_s for row in result.rows] == [0, 86_400, 2 * 86_400]
    assert count(result, "dropped", "before --since") == 2
    assert count(result, "dropped", "after --days") == 2
