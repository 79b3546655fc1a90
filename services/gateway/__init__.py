"""The gateway: what people and programs talk to. gRPC in front, facts behind; see README.md."""
