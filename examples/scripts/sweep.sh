#!/bin/sh
# One point of an unallocated sweep: free, unprotected, idempotent, so it may be started again.
echo "point $1, run $TENURE_RUN_ID"
sleep "${2:-10}"
