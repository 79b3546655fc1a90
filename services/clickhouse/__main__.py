import sys

from services.clickhouse.shell import main

sys.exit(main())
