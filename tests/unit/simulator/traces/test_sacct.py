"""sacct: steps, arrays, attempts, heterogeneous jobs, words for times, and GPUs in every spelling."""

from fractions import Fraction

import pytest

from simulator.traces.importers.tres import gpus_of_gres, gpus_of_tres
from simulator.traces.source import Unreadable
from tenure.domain.refusal import Refusal
from tests.unit.simulator.traces.importing import by_id, count, imported

COLUMNS = "JobID|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES"
GPUS = "billing=16,cpu=16,gres/gpu:h100={0},gres/gpu={0},mem=64G,node=1"


def line(job, *, gpus=8, user="ana", account="chem", qos="normal", state="COMPLETED", submit="2026-03-01T10:00:00",
         start="2026-03-01T10:05:00", end="2026-03-01T11:05:00", elapsed="3600", limit="120", hosts=1):  # fmt: skip
    tres = GPUS.format(gpus) if gpus else "billing=16,cpu=16,mem=64G,node=1"
    return f"{job}|{user}|{account}|gpu|{qos}|{state}|{submit}|{start}|{end}|{elapsed}|{limit}|{hosts}|{tres}\n"


def read(tmp_path, *lines, **options):
    return imported(tmp_path, "sacct", COLUMNS + "\n" + "".join(lines), **options)


def test_steps_arrays_and_jobs_without_gpus(tmp_path):
    result = read(
        tmp_path,
        line("12"),
        line("12.batch", user="", account=""),
        line("12.extern", user=""),
        line("12.0", user=""),
        line("13_4", gpus=1),
        line("13_5", gpus=1, submit="2026-03-01T09:59:00"),
        line("13_[6-9%2]", state="PENDING", start="Unknown", end="Unknown", elapsed="0"),
        line("14", gpus=0),
    )
    assert list(by_id(result)) == ["13_5", "12", "13_4"]
    assert count(result, "dropped", "a step of a job") == 3
    assert count(result, "dropped", "never started") == 1
    assert count(result, "dropped", "asks for no GPU") == 1
    assert result.notes.rows_read == 8 == len(result.rows) + result.notes.dropped


def test_states_and_times_in_words(tmp_path):
    result = read(
        tmp_path,
        line("1", state="CANCELLED by 0", start="None", end="2026-03-01T10:01:00", elapsed="0"),
        line("2", state="CANCELLED by 1000", start="2026-03-01T10:01:00", end="2026-03-01T10:01:00", elapsed="0"),
        line("3", state="CANCELLED by 1000", elapsed="90"),
        line("4", state="RUNNING", end="Unknown", elapsed="7000"),
        line("5", state="FAILED", elapsed="0"),
        line("6", submit="Unknown"),
        line("7", submit="lately"),
        line("8", state="REVOKED"),
        line("9", state="COMPLETED", elapsed="200000"),  # a record that was closed late
        line("10", state="TIMEOUT", elapsed="7230"),
        line("11", state="TIMEOUT", elapsed="200000", limit="UNLIMITED"),
    )
    rows = by_id(result)
    assert {job: row.runtime_s for job, row in rows.items()} == {
        "3": 90, "4": 7000, "5": 1, "9": 7200, "10": 7230, "11": 200_000,
    }  # fmt: skip
    assert count(result, "dropped", "cancelled or still in the queue") == 1
    assert count(result, "dropped", "cancelled with no run time") == 1
    assert count(result, "dropped", "no submit time") == 1
    assert count(result, "dropped", "Submit is not a time") == 1
    assert count(result, "dropped", "revoked") == 1
    assert count(result, "kept", "not over yet") == 1
    assert count(result, "clipped", "past its time limit") == 1


def test_attempts_of_a_requeued_job_are_one_job(tmp_path):
    result = read(
        tmp_path,
        line("20", state="NODE_FAIL", elapsed="500"),
        line("20", state="PREEMPTED", submit="2026-03-01T12:00:00", start="2026-03-01T12:30:00", elapsed="600"),
        line("20", state="COMPLETED", submit="2026-03-01T13:00:00", start="2026-03-01T13:30:00", elapsed="700"),
        line("21"),
        line("21"),  # two dumps that overlap
        line("22"),
        line("22", user="ben", submit="2026-03-02T10:00:00", start="2026-03-02T10:00:00"),  # ids began anew
    )
    rows = by_id(result)
    assert list(rows) == ["20", "21", "22", "22-2"]
    assert (rows["20"].submit_s, rows["20"].runtime_s) == (0, 700)
    assert rows["22-2"].user == "ben"
    assert count(result, "dropped", "an earlier attempt") == 2
    assert count(result, "dropped", "the same job again") == 1
    assert count(result, "changed", "id of an earlier job") == 1


def test_a_heterogeneous_job_is_one_gang(tmp_path):
    result = read(
        tmp_path,
        line("12+0", gpus=8, elapsed="100"),
        line("12+0.batch", gpus=0),
        line("12+1", gpus=16, hosts=2, elapsed="200"),
        line("13+0", gpus=0),
        line("13+1", gpus=4),
    )
    rows = by_id(result)
    assert (rows["12"].replicas, rows["12"].gpus_per_replica, rows["12"].runtime_s) == (3, 8, 200)
    assert rows["13"].gpus == 4
    assert count(result, "dropped", "a part of a heterogeneous job") == 1
    assert count(result, "changed", "one gang of equal replicas") == 1


def test_a_job_keeps_its_hosts_where_that_fits(tmp_path):
    result = read(
        tmp_path,
        line("1", gpus=16, hosts=4),
        line("2", gpus=16, hosts=1),  # a host larger than ours
        line("3", gpus=10, hosts=3),
    )
    assert [(row.replicas, row.gpus_per_replica) for row in result.rows] == [(4, 4), (2, 8), (2, 5)]


def test_other_columns_and_lengths_of_time(tmp_path):
    text = (
        "JobIDRaw|User|Account|State|Submit|Start|Elapsed|Timelimit|NNodes|ReqGRES|\n"
        "1|ana|chem|COMPLETED|1772359200|2026-03-01T10:00:00|1-02:03:04|2-00:00:00|2|gpu:h100:4(IDX:0-3)|\n"
        "2|ana|chem|COMPLETED|2026-03-01T12:00:00+0200|2026-03-01T10:00:00|03:04|UNLIMITED|1|gpu:2|\n"
        "3|ana|chem|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:00|a while|UNLIMITED|1|gpu:2|\n"
        "4||two words|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:00|05:00|Partition_Limit|1|gpu:2|\n"
    )
    result = imported(tmp_path, "sacct", text)
    rows = by_id(result)
    assert {job: (row.submit_s, row.gpus, row.runtime_s) for job, row in rows.items()} == {
        "1": (0, 8, 93_784), "2": (0, 2, 184), "4": (0, 2, 300),
    }  # fmt: skip
    assert (rows["4"].user, rows["4"].budget) == ("unknown", "two-words")
    assert count(result, "dropped", "Elapsed is not a length of time") == 1


def test_wall_times_are_in_the_zone_that_is_said(tmp_path):
    times = [("1", "2026-10-25T02:30:00"), ("2", "2026-10-25T03:30:00")]
    lines = [line(job, submit=submit, start="2026-10-26T00:00:00") for job, submit in times]
    assert [row.submit_s for row in read(tmp_path, *lines).rows] == [0, 3600]
    berlin = read(tmp_path, *lines, timezone="Europe/Berlin")
    assert [row.submit_s for row in berlin.rows] == [0, 7200]
    assert count(berlin, "changed", "clock repeats") == 1
    with pytest.raises(Refusal, match="--timezone: no time zone 'Mars/Olympus'"):
        read(tmp_path, *lines, timezone="Mars/Olympus")


def test_a_zero_that_meant_nothing_does_not_stretch_the_trace(tmp_path):
    result = read(tmp_path, line("1", submit="1970-01-01T00:00:00"), line("2"), line("3", submit="2026-03-05T10:00:00"))
    assert [row.submit_s for row in result.rows] == [0, 4 * 86_400]
    assert count(result, "dropped", "days from the others") == 1
    assert (
        count(read(tmp_path, line("1", elapsed="999999999", limit=""), line("2")), "dropped", "ran for more than") == 1
    )


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(Refusal) as caught:
        imported(tmp_path, "sacct", "JobID|User|State|Submit|End\n1|ana|COMPLETED|x|y\n")
    assert str(caught.value).startswith("sacct.txt:1: no column Account, Start in the header ('JobID', 'User'")
    assert "sacct -a -P -o" in str(caught.value)
    with pytest.raises(Refusal, match="no column AllocTRES or ReqTRES or AllocGRES or ReqGRES in the header"):
        imported(tmp_path, "sacct", "JobID|User|Account|State|Submit|Start|End\n1|ana|chem|COMPLETED|x|y|z\n")


def test_a_bar_inside_a_cell_spoils_its_row_only(tmp_path):
    result = read(tmp_path, line("1", user="a|b"), line("2"), line("x9"))
    assert list(by_id(result)) == ["2"]
    assert count(result, "dropped", "more cells") == 1
    assert count(result, "dropped", "the job id is not Slurm's") == 1


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("", 0),
        ("cpu=4,mem=8G,node=1", 0),
        ("gres/gpu=4", 4),
        ("gres/gpu:a100=8,gres/gpu=8", 8),
        ("gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("gres/gpu=1K", 1024),
        ("gres/gpu:a100_1g.5gb=2,gres/gpu=2", Fraction(2, 7)),
        ("gres/gpu:nvidia_h100_3g.40gb=1", Fraction(3, 7)),
        ("cpu=4,gres/shard=3", Fraction(1, 2)),
        ("gres/gpumem=80G,gres/gpuutil=100", 0),
    ],
)
def test_gpus_of_a_job(tres, gpus):
    assert gpus_of_tres(tres) == gpus


def test_a_count_that_is_none():
    with pytest.raises(Unreadable, match="number of GPUs"):
        gpus_of_tres("gres/gpu=1.2.3")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", 0), ("gpu", 2), ("gpu:4", 8), ("gpu:a100:4", 8), ("gres:gpu:4", 8), ("gres/gpu:a100:1", 2),
        ("gpu:a100:2(S:0-1),license:1", 4), ("gpu:1g.10gb:7", 2),
    ],
)  # fmt: skip
def test_gpus_of_two_hosts(gres, gpus):
    assert gpus_of_gres(gres, hosts=2) == gpus
