"""`tenure submit`: one job or many of the same; prints ids alone, so that scripts can use them."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import completion, parsing
from tenure.cli.connection import caller, connect, here
from tenure.cli.options import JOBS, Json
from tenure.domain.host import CPU
from tenure.domain.job import Topology

if TYPE_CHECKING:
    from tenure.sdk.client import Client

BULK_MAX = 10_000


def register(app: typer.Typer) -> None:
    """Add the command to the tree. Options after CMD belong to CMD."""
    app.command(rich_help_panel=JOBS, context_settings={"allow_interspersed_args": False})(submit)


def submit(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD ...", help="What each replica runs, no shell.")],
    budget: Annotated[
        str,
        typer.Option("--budget", "-b", metavar="PATH", help="The leaf that pays.", autocompletion=completion.leaves),
    ],
    min_runtime: Annotated[
        int,
        typer.Option(
            parser=parsing.duration,
            metavar="TIME",
            help="Nothing preempts a run before it had this long, such as 15m. 0: unallocated, free, never protected.",
        ),
    ],
    gpus: Annotated[
        int,
        typer.Option(
            "--gpus", "-g", parser=parsing.whole_number, metavar="N", help="GPUs of each replica.", show_default=False
        ),
    ] = 0,
    cpus: Annotated[
        int,
        typer.Option(
            parser=parsing.whole_number, metavar="N", help="In place of GPUs: CPUs of each.", show_default=False
        ),
    ] = 0,
    replicas: Annotated[
        int, typer.Option(parser=parsing.whole_number, metavar="N", help="Processes that start and stop together.")
    ] = 1,
    resumable: Annotated[
        bool, typer.Option("--resumable", help="When preempted, go back to the queue and carry on later.")
    ] = False,
    priority: Annotated[
        int, typer.Option(parser=parsing.whole_number, metavar="N", help="Sorts inside the budget; higher first.")
    ] = 0,
    name: Annotated[str, typer.Option("--name", "-n", help="A name for people.", show_default=False)] = "",
    user: Annotated[str, typer.Option(help="Whose job it is.", show_default="you")] = "",
    gpu_type: Annotated[str, typer.Option(metavar="TYPE", help="Such as H100.", show_default="any")] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Only in this cluster of hosts.", show_default="any")
    ] = "",
    topology: Annotated[
        Topology,
        typer.Option(
            help="one-block: all replicas in one block, or wait; prefer-block: in few, never a reason to wait."
        ),
    ] = Topology.ANY,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST,...", help="Only on these hosts. Repeatable.", show_default="any"),
    ] = None,
    exclude_host: Annotated[
        list[str] | None, typer.Option("--exclude-host", metavar="HOST,...", help="Not on these hosts. Repeatable.")
    ] = None,
    grace: Annotated[
        int,
        typer.Option(
            parser=parsing.duration, metavar="TIME", help="Between SIGTERM and SIGKILL.", show_default="the server's"
        ),
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="K=V", help="Its environment; K alone: yours. Repeatable."),
    ] = None,
    workdir: Annotated[str, typer.Option(metavar="DIR", help="Where CMD runs.", show_default="here")] = "",
    idempotency_key: Annotated[
        str, typer.Option(metavar="KEY", help="Sent twice, the same job is submitted once.", show_default=False)
    ] = "",
    count: Annotated[int, typer.Option(min=1, max=BULK_MAX, metavar="N", help="Submit it N times, all or none.")] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over; status 0 if it completed.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id."""
    from tenure.v1 import jobs_pb2

    environment = parsing.environment(env or [])
    size, of_type = _asked(gpus=gpus, cpus=cpus, gpu_type=gpu_type)
    with connect() as client:
        spec = jobs_pb2.JobSpec(
            budget=budget,
            user=user or caller(),
            replicas=replicas,
            gpus_per_replica=size,
            min_runtime_ms=min_runtime,
            resumable=resumable,
            priority=priority,
            name=name,
            gpu_type=of_type,
            cluster=cluster,
            command=command,
            working_directory=workdir or here(),
            environment=environment,
            grace_ms=grace,
            topology=topology,
            hosts=parsing.names(host or []),
            hosts_excluded=parsing.names(exclude_host or []),
        )
        if count == 1:
            ids = [client.submit(spec, idempotency_key=idempotency_key)]
        else:
            ids = client.submit_batch([spec] * count, idempotency_key=idempotency_key)
        _print_ids(ids, as_json=as_json)
        if wait and not wait_for(client, ids):
            raise typer.Exit(1)


def _asked(*, gpus: int, cpus: int, gpu_type: str) -> tuple[int, str]:
    """How many of what each replica holds: GPUs of a type, or CPUs. Raises for both, and for neither."""
    if not cpus:
        if not gpus:
            raise typer.BadParameter("missing; say how many GPUs each replica needs", param_hint="'--gpus'")
        return gpus, gpu_type
    if gpus or gpu_type not in ("", CPU):
        raise typer.BadParameter("given beside GPUs; a job has the one or the other", param_hint="'--cpus'")
    return cpus, CPU


def wait_for(client: "Client", ids: list[str]) -> bool:
    """Wait until all the jobs are over; says on stderr which did not complete. Whether all completed."""
    from tenure.cli.words import reason

    good = True
    for job_id in ids:
        for job in client.watch(job_id):
            state = job.state
        if state != "completed":
            good = False
            ended = f" ({reason(job.why.reason)})" if job.why.reason else ""
            print(f"tenure: {job_id} ended as {state}{ended}; see tenure why {job_id}", file=sys.stderr)
    return good


def _print_ids(ids: list[str], *, as_json: bool) -> None:
    if as_json:
        from tenure.cli.terminal import print_json

        print_json({"jobs": ids})
    else:
        print("\n".join(ids))
    sys.stdout.flush()
