"""Engine messages as errors with a code and a name."""

import pytest

from services.clickhouse.trouble import from_engine


@pytest.mark.parametrize(
    ("message", "code", "status", "line"),
    [
        (
            "Code: 60. DB::Exception: Table t does not exist. (UNKNOWN_TABLE)",
            60,
            404,
            "Code: 60. DB::Exception: Table t does not exist. (UNKNOWN_TABLE)",
        ),
        (
            "Code: 452. DB::Exception: Code: 452. DB::Exception: Setting x should not be changed. (SOME_NAME) "
            "(version 26.9.2.1). (SOME_NAME)",
            452,
            500,
            "Code: 452. DB::Exception: Setting x should not be changed. (SOME_NAME)",
        ),
        (
            "Code: 33. DB::Exception: Cannot read all data: While executing. (CANNOT_READ_ALL_DATA) (version 1.2)",
            33,
            400,
            "Code: 33. DB::Exception: Cannot read all data: While executing. (CANNOT_READ_ALL_DATA)",
        ),
        (
            "Streaming insert failed: Code: 241. DB::Exception: (total) memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)",
            241,
            500,
            "Code: 241. DB::Exception: (total) memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)",
        ),
        ("out of luck", 1001, 500, "Code: 1001. DB::Exception: out of luck (STD_EXCEPTION)"),
        ("", 1001, 500, "Code: 1001. DB::Exception: the engine gave no reason (STD_EXCEPTION)"),
    ],
)
def test_messages(message, code, status, line):
    error = from_engine(message)
    assert (error.code, error.status, str(error)) == (code, status, line)
