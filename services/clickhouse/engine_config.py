"""The engine's two configuration files: what it may use of the machine, and what the one user of it may do.

The grants are half of the wall around the file system; `statement.py` is the other half and says what they miss.
"""

from pathlib import Path
from xml.sax.saxutils import escape

from services.clickhouse.options import DATABASE

_MIB = 1 << 20

PROFILE = {
    "async_insert": "0",  # an acknowledged insert is a written part
    "log_queries": "0",
    "date_time_input_format": "best_effort",
    "cast_string_to_dynamic_use_inference": "1",
}
"""Settings every statement starts with; the last two are what clickhouse-connect asks for in every request."""

_FIXED = (
    "async_insert",
    "dialect",  # another language would pass the statement check unread
    "allow_experimental_eval_table_function",  # statements made at run time, the same
    "format_schema",  # these name files to read or write
    "format_schema_source",
    "format_template_row",
    "format_template_resultset",
    "input_format_record_errors_file_path",
    "rename_files_after_processing",
    "format_avro_schema_registry_url",  # and this a server to ask
)
"""Settings no statement may change."""

_GRANTS = (
    f"SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, TRUNCATE, "
    f"OPTIMIZE, CHECK, dictGet, SYSTEM VIEWS, SYSTEM MERGES, SYSTEM TTL MERGES ON {DATABASE}.*",
    "SELECT ON system.*",
    "SELECT ON information_schema.*",
    "SELECT ON INFORMATION_SCHEMA.*",
    "KILL QUERY, CREATE TEMPORARY TABLE ON *.*",
)
"""Nothing on `default`, which shows the file system as tables; no FILE, URL, S3 and the like; no CREATE DICTIONARY,
because a dictionary can have a command or any file as its source; no users, functions, named collections, backups."""

_CONFIG = """<clickhouse>
<logger><level>none</level><console>0</console></logger>
<users_config>{users}</users_config>
<max_server_memory_usage>{memory}</max_server_memory_usage>
<mark_cache_size>{marks}</mark_cache_size>
<index_mark_cache_size>{marks}</index_mark_cache_size>
<primary_index_cache_size>{marks}</primary_index_cache_size>
<uncompressed_cache_size>0</uncompressed_cache_size>
<index_uncompressed_cache_size>0</index_uncompressed_cache_size>
<merge_tree>
<fsync_after_insert>{fsync}</fsync_after_insert>
<fsync_part_directory>{fsync}</fsync_part_directory>
</merge_tree>
</clickhouse>
"""

_USERS = """<clickhouse>
<users><default>
<password></password>
<profile>default</profile>
<networks><ip>::/0</ip></networks>
<grants>{grants}</grants>
</default></users>
<profiles><default>{settings}<constraints>{constraints}</constraints></default></profiles>
</clickhouse>
"""


def write_config(folder: Path, *, memory_bytes: int, fsync: bool, statement_s_max: int) -> Path:
    """Write both files into `folder` and return the path of the one the engine is started with."""
    users = folder / "users.xml"
    config = folder / "engine.xml"
    settings = {
        **PROFILE,
        "max_execution_time": str(statement_s_max),
        # One statement may use most of the memory, and goes to disk before it must fail.
        "max_memory_usage": str(memory_bytes * 3 // 4),
        "max_bytes_before_external_group_by": str(memory_bytes // 4),
        "max_bytes_before_external_sort": str(memory_bytes // 4),
    }
    users.write_text(
        _USERS.format(
            grants="".join(f"<query>GRANT {grant}</query>" for grant in _GRANTS),
            settings="".join(f"<{name}>{value}</{name}>" for name, value in settings.items()),
            constraints="".join(f"<{name}><const/></{name}>" for name in _FIXED),
        )
    )
    marks = max(16 * _MIB, memory_bytes // 32)
    config.write_text(
        _CONFIG.format(users=escape(str(users)), memory=memory_bytes, marks=marks, fsync=int(fsync)),
    )
    return config
