#!/bin/sh
# A job that fails.
echo "about to fail" >&2
exit 3
