"""The report on hosts as a message."""

from services.gateway.policy.host_report import HostReport, Spread
from tenure.v1 import hosts_pb2


def from_host_report(report: HostReport) -> hosts_pb2.HostReportResponse:
    """The whole report."""
    return hosts_pb2.HostReportResponse(
        since_ms=report.since,
        until_ms=report.until,
        hosts=report.hosts,
        gpus=report.gpus,
        availability=report.availability,
        out_gpu_ms=report.out_gpu_ms,
        refunded_gpu_ms=report.refunded_gpu_ms,
        automatic_share=report.automatic_share,
        detect=_spread(report.detect),
        drain=_spread(report.drain),
        repair=_spread(report.repair),
        causes=[
            hosts_pb2.IncidentCause(
                reason=cause.reason,
                automatic=cause.automatic,
                human=cause.human,
                still_open=cause.still_open,
                refunded_gpu_ms=cause.refunded_gpu_ms,
            )
            for cause in report.causes
        ],
        incidents=[
            hosts_pb2.Incident(
                incident=one.incident,
                host=one.host,
                reason=one.reason,
                ending=one.ending,
                state=one.state,
                began_ms=one.began_at,
                drained_ms=one.drained_at or 0,
                ended_ms=one.ended_at or 0,
                by=one.by or "",
                comment=one.comment,
                refunded_gpu_ms=one.refunded_gpu_ms,
            )
            for one in report.incidents
        ],
    )


def _spread(spread: Spread) -> hosts_pb2.Spread:
    return hosts_pb2.Spread(
        count=spread.count, p50_ms=spread.p50_ms, p90_ms=spread.p90_ms, longest_ms=spread.longest_ms
    )
