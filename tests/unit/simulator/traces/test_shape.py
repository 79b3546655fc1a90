"""Replicas: the number of GPUs stays, and every shape fits the cluster."""

from hypothesis import example, given
from hypothesis import strategies as st

from simulator.traces.shape import clip, shape


def test_shapes_of_hosts_of_eight():
    sizes = (1, 3, 8, 9, 11, 12, 14, 16, 20, 64, 100)
    assert [shape(gpus, gpus_per_host=8) for gpus in sizes] == [
        (1, 1), (1, 3), (1, 8), (3, 3), (11, 1), (2, 6), (2, 7), (2, 8), (4, 5), (8, 8), (20, 5),
    ]  # fmt: skip


def test_a_shape_that_would_waste_more_hosts_than_there_are_is_cut_smaller():
    assert shape(1015, gpus_per_host=8) == (145, 7)
    assert shape(1015, gpus_per_host=8, most=1024) == (1015, 1)
    assert shape(1020, gpus_per_host=8, most=1024) == (255, 4)


def test_clipping_leaves_whole_hosts():
    assert [clip(gpus, most=1020, gpus_per_host=8) for gpus in (4, 1020, 1021, 5000)] == [4, 1020, 1016, 1016]
    assert clip(9, most=4, gpus_per_host=8) == 4


@given(
    gpus=st.integers(1, 3000), gpus_per_host=st.integers(1, 16), cluster=st.integers(1, 300), hosts=st.integers(0, 40)
)
@example(gpus=300, gpus_per_host=16, cluster=16, hosts=0)
def test_every_shape_fits(gpus, gpus_per_host, cluster, hosts):
    most = cluster * gpus_per_host
    wanted = clip(gpus, most=most, gpus_per_host=gpus_per_host)
    replicas, each = shape(wanted, gpus_per_host=gpus_per_host, most=most, hosts=hosts)
    assert replicas * each == wanted
    assert 1 <= each <= gpus_per_host
    assert replicas <= cluster * (gpus_per_host // each)
