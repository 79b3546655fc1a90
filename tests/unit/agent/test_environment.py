"""The environment of a replica: what passes, what the job may say, what it may not."""

from dataclasses import replace

from services.agent.environment import NO_DEVICES, RESERVED, RunContext, replica_environment
from tenure.domain.ids import BudgetPath, JobId, RunId

CONTEXT = RunContext(
    run=RunId("j-7.3"),
    job=JobId("j-7"),
    budget=BudgetPath("science/chem"),
    replica=2,
    replicas=4,
    gpus=(4, 5),
    master_address="10.0.0.9",
    master_port=29511,
    min_runtime_ms=900_000,
    launched_at=1_700_000_000_900,
    checkpoint_dir="/data/checkpoints/j-7",
    resume_count=2,
)
AGENT = {
    "PATH": "/usr/bin",
    "LC_ALL": "C.UTF-8",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "https_proxy": "http://user:secret@proxy",
    "PYTHONPATH": "/opt/agent",
    "TENURE_SERVER": "127.0.0.1:1",
    "RANK": "9",
}


def test_the_whole_environment():
    environment = replica_environment(CONTEXT, user={"WANDB_MODE": "offline"}, inherited=AGENT)
    assert environment == {
        "PATH": "/usr/bin",
        "LC_ALL": "C.UTF-8",
        "WANDB_MODE": "offline",
        "CUDA_VISIBLE_DEVICES": "4,5",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": "10.0.0.9",
        "MASTER_PORT": "29511",
        "WORLD_SIZE": "4",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "NODE_RANK": "2",
        "NNODES": "4",
        "TENURE_JOB_ID": "j-7",
        "TENURE_RUN_ID": "j-7.3",
        "TENURE_REPLICA": "2",
        "TENURE_BUDGET": "science/chem",
        "TENURE_MIN_RUNTIME_S": "900",
        "TENURE_PROTECTED_UNTIL": "1700000900",
        "TENURE_CHECKPOINT_DIR": "/data/checkpoints/j-7",
        "TENURE_RESUME_COUNT": "2",
    }


def test_the_job_cannot_say_which_gpus_or_which_rank_it_is():
    forged = dict.fromkeys((*RESERVED, "TENURE_RUN_ID", "TENURE_ANYTHING"), "forged")
    environment = replica_environment(CONTEXT, user=forged, inherited=AGENT)
    assert environment == replica_environment(CONTEXT, user={}, inherited=AGENT)


def test_the_job_may_choose_its_path_and_its_port():
    environment = replica_environment(CONTEXT, user={"PATH": "/opt/conda/bin", "MASTER_PORT": "1234"}, inherited=AGENT)
    assert (environment["PATH"], environment["MASTER_PORT"]) == ("/opt/conda/bin", "1234")


def test_gpus_with_names_of_their_own_are_given_by_name():
    named = replace(CONTEXT, devices=("GPU-a", "GPU-b"))
    assert replica_environment(named, user={}, inherited={})["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_an_unallocated_run_is_never_protected():
    unallocated = replace(CONTEXT, min_runtime_ms=0)
    environment = replica_environment(unallocated, user={}, inherited={})
    assert (environment["TENURE_MIN_RUNTIME_S"], environment["TENURE_PROTECTED_UNTIL"]) == ("0", "")


def test_a_replica_on_cpus_sees_no_gpu():
    environment = replica_environment(replace(CONTEXT, devices=NO_DEVICES), user={}, inherited=AGENT)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
