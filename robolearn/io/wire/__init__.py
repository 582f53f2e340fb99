"""gRPC between machines: messages without generated code, a server and a client, tokens and certificates."""
