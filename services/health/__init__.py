"""The health role: heartbeats and drains in, host states and available capacity out."""
