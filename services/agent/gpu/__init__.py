"""Where a host's GPUs come from: the `virtual` provider makes them up, the `nvidia` provider asks NVML."""
