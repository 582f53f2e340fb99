"""The wire between actors and learner: gRPC with protocol buffers, tokens and certificates; no pickle."""
