"""openb: jobs without GPUs, parts of a GPU, given up in the queue, unfinished, and ids that come twice."""

from tests.unit.simulator.traces.importing import by_id, count, imported

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def line(name, gpus, milli, times, *, qos="LS", spec=""):
    created, scheduled, deleted = times
    return f"{name},1000,1024,{gpus},{milli},{spec},{qos},Running,{created},{deleted},{scheduled}\n"


def test_every_anomaly_of_the_source(tmp_path):
    text = HEADER + "".join(
        [
            line("late", 8, 1000, (500, 510, 700)),
            line("early", 1, 1000, (100, 160, 400), qos="BE"),
            line("part", 1, 460, (200, 200, 300)),
            line("none", 0, 0, (200, 200, 300)),
            line("gave-up", 1, 1000, (200, "", 294)),
            line("nothing", 1, 1000, (200, "", "")),
            line("open", 1, 1000, (600, 650, "")),
            line("censored", 2, 1000, (600, 700, 1000)),
            line("instant", 1, 1000, (600, 600, 600), spec="V100M16|V100M32|V100M32"),
            line("backwards", 1, 1000, (600, 610, 605)),
            line("unknown-time", 1, 1000, ("NA", 610, 620)),
            line("broken", "two", 1000, (600, 610, 620)),
        ]
    )
    result = imported(tmp_path, "openb", text)
    rows = by_id(result)
    assert list(rows) == ["early", "part", "late", "censored", "instant", "open"]
    assert {name: row.submit_s for name, row in rows.items()} == {
        "early": 0, "part": 100, "late": 400, "censored": 500, "instant": 500, "open": 500,
    }  # fmt: skip
    assert {name: row.runtime_s for name, row in rows.items()} == {
        "early": 240, "part": 100, "late": 190, "censored": 300, "instant": 1, "open": 350,
    }  # fmt: skip
    assert rows["part"].gpus == 1
    assert {row.budget for row in result.rows} == {"LS", "BE"}
    assert count(result, "dropped", "asks for no GPU") == 1
    assert count(result, "dropped", "given up in the queue") == 1
    assert count(result, "dropped", "ends before it starts") == 1
    assert count(result, "dropped", "no creation time") == 1
    assert count(result, "dropped", "num_gpu is not a number") == 1
    assert count(result, "changed", "part of a GPU") == 1
    assert count(result, "changed", "models of GPU") == 1
    assert count(result, "changed", "has no end") == 1
    assert count(result, "kept", "ends with the trace") == 1
    assert result.notes.rows_read == 12 == len(result.rows) + result.notes.dropped


def test_an_id_that_comes_twice_is_another_job_unless_all_is_the_same(tmp_path):
    first, again = line("a", 1, 1000, (0, 0, 10)), line("a", 1, 1000, (5, 5, 10))
    result = imported(tmp_path, "openb", HEADER + first + first + again + again)
    assert list(by_id(result)) == ["a", "a-2"]
    assert count(result, "dropped", "the same job again") == 2
    assert count(result, "changed", "id of an earlier job") == 1


def test_ids_that_are_missing_or_unusable(tmp_path):
    rows = line("", 1, 1000, (0, 0, 10)) + line("a b/c\x1b", 1, 1000, (1, 1, 10)) + line("ok", 1, 1000, (2, 2, 10))
    result = imported(tmp_path, "openb", HEADER + rows)
    assert list(by_id(result)) == ["line-000002", "a-b-c-", "ok"]
    assert count(result, "changed", "no job id") == 1
    assert count(result, "changed", "no name may") == 1
