"""What is read of /proc."""

import os

from services.agent.process.proc import is_alive, open_process, parse_stat, read_stat


def test_a_name_with_blanks_and_brackets_does_not_shift_the_fields():
    line = b"42 (a) S 9 (b c)) R 7 42 40 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 5555 1000 10 18446744073709551615"
    stat = parse_stat(line)
    assert (stat.pid, stat.state, stat.parent, stat.group, stat.session) == (42, "R", 7, 42, 40)
    assert (stat.cpu_ticks, stat.start_ticks) == (127, 5555)


def test_a_process_is_known_by_pid_and_start_time():
    own = read_stat(os.getpid())
    assert own is not None
    assert is_alive(pid=own.pid, start_ticks=own.start_ticks)
    assert not is_alive(pid=own.pid, start_ticks=own.start_ticks - 1)
    assert open_process(pid=own.pid, start_ticks=own.start_ticks - 1) is None
    descriptor = open_process(pid=own.pid, start_ticks=own.start_ticks)
    assert descriptor is not None
    os.close(descriptor)
