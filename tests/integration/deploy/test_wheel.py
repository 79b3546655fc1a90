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


def test_an_installed_wheel_migrates_an_empty_database(installed: Path, tmp_path: Path) -> None:
    server = Server(data=tmp_path / "clickhouse")
    server.start()
    try:
        command = [str(installed / "bin" / "python"), "-c", MIGRATE, server.url, str(server.token_file)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        where, applied = json.loads(done.stdout)
        assert Path(where).is_relative_to(installed)
        assert applied == sorted(path.name for path in (ROOT / "deploy" / "clickhouse").glob("*.sql"))
        assert server.client().query("SELECT count() FROM migrations FINAL").result_rows == [(len(applied),)]
    finally:
        server.kill()
