"""The one log between the roles: a port, two adapters (memory, NATS JetStream) and the codec."""
