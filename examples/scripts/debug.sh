#!/bin/sh
# A debug job: looks at what it was given, and is done.
echo "GPUs $CUDA_VISIBLE_DEVICES of budget $TENURE_BUDGET, contract $TENURE_MIN_RUNTIME_S s"
