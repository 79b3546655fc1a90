"""Who signed in: for how long, how many at once, and from which user of the machine."""

from services.console.callers import SESSION_S, SESSIONS_MAX, SESSIONS_OF_USER_MAX, Sessions


def test_a_session_is_the_one_of_the_user_of_the_machine_who_began_it() -> None:
    sessions = Sessions()
    name = sessions.begin("token", user="ana", uid=1000)
    elsewhere = sessions.begin("token", user="ana", uid=None)
    assert sessions.token_of(name, uid=1000) == "token" and sessions.token_of(elsewhere, uid=None) == "token"
    assert sessions.token_of(name, uid=1001) == sessions.token_of(name, uid=None) == ""
    assert sessions.token_of(elsewhere, uid=0) == ""
    sessions.end(name)
    assert sessions.token_of(name, uid=1000) == ""


def test_a_session_ends_and_is_forgotten() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.begin("token", user="ana", uid=None)
    now[0] = SESSION_S - 1
    second = sessions.begin("token", user="ana", uid=None)
    assert sessions.token_of(first, uid=None) and len(sessions) == 2
    now[0] = SESSION_S
    assert not sessions.token_of(first, uid=None) and sessions.token_of(second, uid=None)
    assert len(sessions) == 1, "its token is kept no longer"


def test_one_user_cannot_push_the_others_out() -> None:
    sessions = Sessions()
    hers = sessions.begin("hers", user="eve", uid=None)
    names = [sessions.begin(str(number), user="ana", uid=None) for number in range(SESSIONS_OF_USER_MAX + 3)]
    assert sessions.token_of(hers, uid=None) == "hers"
    assert [bool(sessions.token_of(name, uid=None)) for name in names] == [False] * 3 + [True] * SESSIONS_OF_USER_MAX
    for number in range(SESSIONS_MAX):
        sessions.begin("token", user=f"u{number}", uid=None)
    assert len(sessions) == SESSIONS_MAX and not sessions.token_of(hers, uid=None)
