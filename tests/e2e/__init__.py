"""The commands of the README on real parts: real processes, servers and files on this machine."""
