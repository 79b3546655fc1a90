"""Whatever a foreign file holds: it is refused in a line, or becomes a trace that is read, each row accounted for."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.traces.contract import parse_rules
from simulator.traces.convert import Options, Source, import_trace
from simulator.traces.shares import budgets_yaml
from simulator.traces.write import chunks
from simulator.workload import read_trace
from tenure.domain.refusal import Refusal
from tenure.runtime.budgets_file import load_budgets

SOUND = {
    Source.PHILLY: (",", "timestamp,duration,num_gpus,cluster", "2017-10-09 07:01:55,66.0,1,11cb48"),
    Source.OPENB: (
        ",",
        "name,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time",
        "openb-0,1,460,V100,LS,0,100,50",
    ),
    Source.SWF: (" ", "", "1 100 10 600 8 -1 -1 8 3600 -1 1 1 1 -1 1 -1 -1 -1"),
    Source.SACCT: (
        "|",
        "JobID|User|Account|QOS|State|Submit|Start|End|Elapsed|Timelimit|NNodes|AllocTRES|ReqGRES",
        "12|ana|chem|high|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:05:00|Unknown|01:00:00|2:00:00|2|gres/gpu=8|gpu:4",
    ),
}
"""Of each source what separates cells, a header and a row."""
WORDS = (
    "", "-1", "NA", "0", "1", "0.5", "13", "8192", "999999999", "99999999999999999999", "inf", "nan", "1e300", "-7",
    "Unknown", "None", "2017-11-05 01:30:00", "0001-01-01T00:00:00", "9999-12-31 23:59:59", "2017-02-30 00:00:00",
    "12.batch", "12+1", "12_3", "12_[1-9]", "CANCELLED by 0", "RUNNING", "PENDING", "REVOKED", "UNLIMITED",
    "gres/gpu:1g.10gb=3", "gres/gpu=1000000000",
    "gpu:a100:9(S:0)", '"', '\r,"', "\x00", "\x1b[2J", "a/b", "  x  ", "=1+1",
)  # fmt: skip
ODD = st.sampled_from(WORDS) | st.text(max_size=8)


@st.composite
def files(draw: st.DrawFn, source: Source) -> str:
    """A file of up to a dozen rows, some cells of which hold anything."""
    separator, header, sound = SOUND[source]
    lines = [header] if header else ["; a comment"]
    for _ in range(draw(st.integers(0, 12))):
        cells = sound.split(separator)
        for index in draw(st.lists(st.integers(0, len(cells) - 1), max_size=3)):
            cells[index] = draw(ODD)
        lines.append(separator.join(cells))
    return "\n".join(lines)


@pytest.mark.parametrize("source", list(Source))
@given(data=st.data(), most_gpus=st.sampled_from([0, 5, 64, 1000]))
def test_any_file_is_refused_or_becomes_a_trace(source: Source, data: st.DataObject, most_gpus: int) -> None:
    text = data.draw(files(source))
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "foreign").write_bytes(text.encode("utf-8", errors="surrogatepass"))
        options = Options(rules=parse_rules(()), most_gpus=most_gpus)
        try:
            result = import_trace(folder / "foreign", source=source, options=options)
        except Refusal as refusal:
            assert "\n" not in str(refusal)
            return
        assert result.notes.rows_read == len(result.rows) + result.notes.dropped
        assert not most_gpus or max(row.gpus for row in result.rows) <= most_gpus
        (folder / "trace.csv").write_bytes(b"".join(chunks(result.rows)))
        (folder / "budgets.yaml").write_text("\n".join(budgets_yaml(result.gpu_s)))
        read = read_trace(folder / "trace.csv", tree=load_budgets(folder / "budgets.yaml"))
        assert [job.job for job in read.jobs] == [row.job_id for row in result.rows]
        assert result.rows[0].submit_s == 0
